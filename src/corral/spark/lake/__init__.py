"""The lake: a history of jobs in three layers, with reports and audits."""
