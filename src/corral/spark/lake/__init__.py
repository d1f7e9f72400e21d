"""The lake: the history of jobs in three layers (bronze, silver, gold), with reports and audits."""
