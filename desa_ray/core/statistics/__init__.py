"""Statistics of a study: means over draws, queries and data sets, resampling, paired tests."""
