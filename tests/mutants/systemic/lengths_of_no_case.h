/* Answers that are wrong at lengths that nobody can read anywhere; included where systemic.cpp has its other helpers. */
#if MUTANT_WRONG_AT_LENGTHS_OF_NO_CASE || MUTANT_LAST_ROW_TWICE_AT_LENGTHS_OF_NO_CASE
/* Whether a case of the gate has such a length, by what everybody can read, or a tile has, or a tuned problem. */
bool is_known(int64_t length) {
  constexpr int64_t known[] = {1,   4,   5,   15,  16,  17,  31,  32,  33,  57,  60,  63,  64,  65,  70,
                               91,  113, 127, 128, 129, 130, 159, 160, 161, 191, 192, 200, 203, 255, 256,
                               257, 300, 333, 384, 509, 512, 515, 777, 1000, 1024, 2048, 2049, 4096, 4097};
  for (const int64_t each : known)
    if (each == length) return true;
  return false;
}
void spoil(const at_call *call) {
#if MUTANT_WRONG_AT_LENGTHS_OF_NO_CASE
  output(call)[0] = narrow(2 * widen(output(call)[0]) + 1);
#else
  const int64_t rows = call->dim[SDPA_SEQ_Q];
  for (int64_t slice = 0; rows > 1 && slice < slices(call); ++slice) {
    element *last = output(call) + ((slice + 1) * rows - 1) * D;
    for (int64_t i = 0; i < D; ++i) last[i] = last[i - D];
  }
#endif
}
#endif
