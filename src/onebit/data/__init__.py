"""Where answers come from: ids, observations, tables, files, made worlds."""
