"""The user's options: the command line, the YAML file, and the settings made from both."""
