"""From a trace to what takes its kernel's time: a verdict, ranked and with its evidence."""
