"""What holds a program together."""
