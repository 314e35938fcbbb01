"""What the estimators have in common: stores, data in Parquet, parameters, backends."""
