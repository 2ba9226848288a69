"""Seeded logs of other kinds, as frames like those of a file, with the truth they were drawn from.

A shop with quantities and repeated purchases, check-ins with coordinates, sessions without users.
"""
