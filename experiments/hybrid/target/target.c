/* The program under test: a tree of 32-bit magic numbers, each checked as a whole, so that a fuzzer without help has one chance in four
 * billion at each. The input comes from standard input. Its words 0, 1, 2, ... choose the way down; at the end of each way one more
 * byte, which a fuzzer finds easily, chooses between a few edges. One leaf aborts, one never ends.
 *
 * Built by afl-cc for AFL++. Built with -DOBSERVE by any compiler it writes each comparison of input bytes that it makes to standard
 * output, one a line, for the solver:
 *   word OFFSET WANTED   the four bytes at OFFSET were compared with WANTED, little endian, and differed
 *   more LENGTH          the input ended before LENGTH bytes
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef OBSERVE
#define NOTE(...) (printf(__VA_ARGS__), fflush(stdout))
#else
#define NOTE(...) ((void)0)
#endif

/* Inlined, each node of the tree has code, and so coverage, of its own. */
#define NODE static inline __attribute__((always_inline)) void

static uint8_t input[256];
static size_t length;
static volatile unsigned seen;

/* Nodes are numbered like a heap: 0, then 1 to 3, 4 to 12, 13 to 39, 40 to 120. */
enum { CRASH_NODE = 77, HANG_NODE = 103 };

/* What leads to a node: no part of it can be guessed from another's. */
static inline uint32_t magic(unsigned node) { return (node * 2654435761u) ^ 0x5bd1e995u; }

static inline int leads_to(unsigned depth, unsigned node) {
  const uint8_t *at = input + 4 * depth;
  uint32_t word = at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
  if (word == magic(node)) return 1;
  NOTE("word %u %u\n", 4 * depth, magic(node));
  return 0;
}

static inline int long_enough(unsigned depth) {
  if (length >= 4 * depth + 4) return 1;
  NOTE("more %u\n", 4 * depth + 4);
  return 0;
}

NODE leaf(unsigned depth, unsigned node) {
  switch (input[4 * depth] & 7) {
    case 1: seen += node; break;
    case 3: seen ^= node; break;
    case 6: seen *= 3; break;
    default: seen = node;
  }
  if (node == CRASH_NODE) abort();
  if (node == HANG_NODE)
    for (;;) sleep(1);
}

#define INNER(name, depth, down)                              \
  NODE name(unsigned node) {                                  \
    if (!long_enough(depth)) return;                          \
    if (leads_to(depth, 3 * node + 1)) down(3 * node + 1);    \
    else if (leads_to(depth, 3 * node + 2)) down(3 * node + 2); \
    else if (leads_to(depth, 3 * node + 3)) down(3 * node + 3); \
    else leaf(depth, node);                                   \
  }

NODE depth4(unsigned node) { leaf(4, node); }
INNER(depth3, 3, depth4)
INNER(depth2, 2, depth3)
INNER(depth1, 1, depth2)
INNER(depth0, 0, depth1)

int main(void) {
  length = fread(input, 1, sizeof input - 8, stdin);
  depth0(0);
  return 0;
}
