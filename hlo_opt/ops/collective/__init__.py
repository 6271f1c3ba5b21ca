"""Operations of several devices."""
