"""JobScheduler: queues that add jobs to themselves, by the clock."""
