"""Why a job hangs: asks its ranks, compares what they tell, and says it in a few lines."""
