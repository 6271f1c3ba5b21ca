"""What these functions do, written over an array module `xp`; drivers contain their text."""
