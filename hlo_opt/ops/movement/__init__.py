"""Operations that rearrange elements without computing."""
