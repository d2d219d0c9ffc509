listen {
  resst = "127.0.0.1:8122"
}
listn {
}
plugins = "/x"
data_dir {
}
isolation "docker" "container" {
  image = "debian"
}
