"""Operations with run-time indices."""
