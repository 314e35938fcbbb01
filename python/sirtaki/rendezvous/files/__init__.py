"""Files in memory and private folders."""
