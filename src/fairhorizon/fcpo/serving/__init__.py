"""How a trained policy makes lists under any limit."""
