"""`sirtaki bench compare`: a PyTorch script over Gloo and over Sirtaki, in turns."""
