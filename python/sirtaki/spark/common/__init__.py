"""The shared parts of the estimators: stores, Parquet data, parameters, backends."""
