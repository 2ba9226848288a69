"""Result rows become tables, figures and one self-contained page; nothing is trained here."""
