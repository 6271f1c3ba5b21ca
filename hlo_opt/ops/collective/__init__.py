"""Operations across several devices."""
