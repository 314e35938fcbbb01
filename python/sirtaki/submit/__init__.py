"""`sirtaki submit`: submits job scripts to schedulers."""
