listen {
  rest = "127.0.0.1:8122
}
