/* Which variant serves a problem: the table of an export, and how it is looked up. C11 and C++; neither Python nor torch.
 *
 * The table itself is C that the export writes beside this file. */
#ifndef AUTOTUNER_DISPATCH_H
#define AUTOTUNER_DISPATCH_H

#include <stddef.h>

#include "identity.h"

#define AT_FIELDS 12

/* Why no variant serves a call. From 0 on a number is the place in the table of what does: an entry, or behind them a
 * range. An op's own reasons follow, from AT_OWN_REASON on. Words for all of them: at_table.why. */
enum {
  AT_NOT_TUNED = -1,
  AT_MIXED = -2,       /* tensors of several devices or element types */
  AT_ELSEWHERE = -3,   /* another kind of device */
  AT_OTHER_MODEL = -4, /* another model of device than the proven one */
  AT_OTHER_THREADS = -5,
  AT_DTYPE = -6,
  AT_UNALIGNED = -7,
  AT_REFUSED = -8,   /* the variant itself refused the call */
  AT_WORKSPACE = -9, /* missing, too small or not aligned */
  AT_SHAPES = -10,   /* tensors that do not fit together */
  AT_STRIDES = -11,  /* tensors that lie as no variant takes them */
  AT_OWN_REASON = -12
};

/* Sizes in the order of the op's dims, what is compiled in, and the numbers that a variant is given beside. */
typedef struct at_problem {
  int64_t dim[AT_MAX_DIM];
  int32_t field[AT_FIELDS];
  double scalar[AT_MAX_SCALAR];
} at_problem;

typedef struct at_entry {
  at_problem problem;
  int32_t use; /* which variant; -1: the baseline */
} at_entry;

/* Problems with the same fields whose sizes lie between two, both included. */
typedef struct at_range {
  at_problem low;
  int64_t high[AT_MAX_DIM];
  uint32_t together; /* bit i: size i is the same number as every other size that has its bit here */
  int32_t use;
} at_range;

typedef struct at_table {
  const at_entry *entries;
  const at_range *ranges;
  const at_identity *const *variants;
  const char *const *why; /* reasons from the last one on, then one of each entry and each range */
  int32_t entry_count, range_count, variant_count, dims, reasons;
} at_table;

static inline const char *at_why(const at_table *table, int place) { return table->why[place + table->reasons]; }

static inline int at_places(const at_table *table) { return table->entry_count + table->range_count; }

/* The variant of a place; -1 where the baseline serves it. */
static inline int at_use(const at_table *table, int place) {
  if (place < 0) return -1;
  return place < table->entry_count ? table->entries[place].use : table->ranges[place - table->entry_count].use;
}

static inline int at_same_fields(const at_problem *one, const at_problem *other) {
  for (int i = 0; i < AT_FIELDS; i++)
    if (one->field[i] != other->field[i]) return 0;
  for (int i = 0; i < AT_MAX_SCALAR; i++)
    if (one->scalar[i] != other->scalar[i]) return 0;
  return 1;
}

/* Whether each size lies between the two. */
static inline int at_within(const int64_t *low, const int64_t *size, const int64_t *high, int dims) {
  for (int i = 0; i < dims; i++)
    if (size[i] < low[i] || size[i] > high[i]) return 0;
  return 1;
}

/* Whether a problem of the table, an entry's or the least of a range, has this value in a field. */
static inline int at_has(const at_table *table, int field, int32_t value) {
  for (int i = 0; i < table->entry_count; i++)
    if (table->entries[i].problem.field[field] == value) return 1;
  for (int i = 0; i < table->range_count; i++)
    if (table->ranges[i].low.field[field] == value) return 1;
  return 0;
}

/* Whether the sizes with a bit in `together` are one number. */
static inline int at_alike(uint32_t together, const int64_t *size, int dims) {
  int64_t one = -1;
  for (int i = 0; i < dims; i++) {
    if (!(together >> i & 1)) continue;
    if (one >= 0 && size[i] != one) return 0;
    one = size[i];
  }
  return 1;
}

/* The place in the table that answers for the problem, an entry before a range; AT_NOT_TUNED where none does. */
static inline int at_look_up(const at_table *table, const at_problem *problem) {
  for (int i = 0; i < table->entry_count; i++) {
    const at_problem *entry = &table->entries[i].problem;
    if (at_same_fields(entry, problem) && at_within(entry->dim, problem->dim, entry->dim, table->dims)) return i;
  }
  for (int i = 0; i < table->range_count; i++) {
    const at_range *range = &table->ranges[i];
    if (at_same_fields(&range->low, problem) && at_within(range->low.dim, problem->dim, range->high, table->dims) &&
        at_alike(range->together, problem->dim, table->dims))
      return table->entry_count + i;
  }
  return AT_NOT_TUNED;
}

#endif
