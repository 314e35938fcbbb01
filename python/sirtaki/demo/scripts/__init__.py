"""The scripts of `sirtaki demo`, which copies them into a folder and runs them there."""
