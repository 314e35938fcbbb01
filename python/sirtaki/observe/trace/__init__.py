"""`sirtaki trace`: what all ranks of a running job do, in one file."""
