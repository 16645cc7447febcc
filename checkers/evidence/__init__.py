"""Read run folders, copies of brokers' disks and spools of live clusters into DataFrames, without conclusions."""
