"""Sources of records, their transformation, and reading ahead."""
