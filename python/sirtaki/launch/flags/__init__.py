"""What a user may ask for: the command line, the YAML file, and the settings that come of both."""
