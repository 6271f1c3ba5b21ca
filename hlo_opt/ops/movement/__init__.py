"""Operations that move elements without looking at them."""
