"""Operations whose indices are data."""
