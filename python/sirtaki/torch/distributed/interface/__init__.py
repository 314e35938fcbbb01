"""The interface of a group besides its operations, and the accepted argument forms."""
