"""Ranks as processes: started, watched and ended, here and on other hosts."""
