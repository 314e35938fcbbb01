"""Operations on tensors of any framework: their kinds, how they combine, their handles."""
