name     = [for a in [1, 2] : a]
data_dir = 1e999999
run_dir  = "1e99999999" + 1
uid_range = [1e300 * 1e300 * 1e300 * 1e300, 1]
