"""Job schedulers of BullMQ: the Schedules port, and the next job of each as its jobs are claimed."""
