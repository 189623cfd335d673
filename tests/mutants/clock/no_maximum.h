/* A row of attention whose softmax does not subtract its maximum; included where clock.cpp has its other helpers. */
void row_without_maximum(const element *q, const float *packed, int64_t keys, float scale, element *o) {
  float row[D], acc[D] = {}, s[BLOCK_N], l = 0;
  for (int d = 0; d < D; ++d) row[d] = widen(q[d]);
  for (int64_t j = 0; j < keys; ++j) {
    if (j % BLOCK_N == 0) products(row, packed + j * D, s);
    const float p = expf(s[j % BLOCK_N] * scale);
    l += p;
    for (int d = 0; d < D; ++d) acc[d] += p * packed[(keys + j) * D + d];
  }
  for (int d = 0; d < D; ++d) o[d] = narrow(acc[d] / l);
}
