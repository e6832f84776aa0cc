// The 64 steps of MD5 (RFC 1321, 3.4), for one message or for vectors of them; included by md5.cc
// and by units that are compiled for newer CPUs, and so in an unnamed namespace.
#pragma once

#include <stdint.h>

namespace ff::simd {
namespace {

struct Md5Step {
  uint32_t constant;  // floor(2^32 * |sin(i + 1)|)
  int word;
  int turn;  // bits to the left
};

constexpr Md5Step kMd5Steps[64] = {
    {0xD76AA478, 0, 7},  {0xE8C7B756, 1, 12},  {0x242070DB, 2, 17},  {0xC1BDCEEE, 3, 22},
    {0xF57C0FAF, 4, 7},  {0x4787C62A, 5, 12},  {0xA8304613, 6, 17},  {0xFD469501, 7, 22},
    {0x698098D8, 8, 7},  {0x8B44F7AF, 9, 12},  {0xFFFF5BB1, 10, 17}, {0x895CD7BE, 11, 22},
    {0x6B901122, 12, 7}, {0xFD987193, 13, 12}, {0xA679438E, 14, 17}, {0x49B40821, 15, 22},
    {0xF61E2562, 1, 5},  {0xC040B340, 6, 9},   {0x265E5A51, 11, 14}, {0xE9B6C7AA, 0, 20},
    {0xD62F105D, 5, 5},  {0x02441453, 10, 9},  {0xD8A1E681, 15, 14}, {0xE7D3FBC8, 4, 20},
    {0x21E1CDE6, 9, 5},  {0xC33707D6, 14, 9},  {0xF4D50D87, 3, 14},  {0x455A14ED, 8, 20},
    {0xA9E3E905, 13, 5}, {0xFCEFA3F8, 2, 9},   {0x676F02D9, 7, 14},  {0x8D2A4C8A, 12, 20},
    {0xFFFA3942, 5, 4},  {0x8771F681, 8, 11},  {0x6D9D6122, 11, 16}, {0xFDE5380C, 14, 23},
    {0xA4BEEA44, 1, 4},  {0x4BDECFA9, 4, 11},  {0xF6BB4B60, 7, 16},  {0xBEBFBC70, 10, 23},
    {0x289B7EC6, 13, 4}, {0xEAA127FA, 0, 11},  {0xD4EF3085, 3, 16},  {0x04881D05, 6, 23},
    {0xD9D4D039, 9, 4},  {0xE6DB99E5, 12, 11}, {0x1FA27CF8, 15, 16}, {0xC4AC5665, 2, 23},
    {0xF4292244, 0, 6},  {0x432AFF97, 7, 10},  {0xAB9423A7, 14, 15}, {0xFC93A039, 5, 21},
    {0x655B59C3, 12, 6}, {0x8F0CCC92, 3, 10},  {0xFFEFF47D, 10, 15}, {0x85845DD1, 1, 21},
    {0x6FA87E4F, 8, 6},  {0xFE2CE6E0, 15, 10}, {0xA3014314, 6, 15},  {0x4E0811A1, 13, 21},
    {0xF7537E82, 4, 6},  {0xBD3AF235, 11, 10}, {0x2AD7D2BB, 2, 15},  {0xEB86D391, 9, 21},
};

// `V` has a word of each lane, with +. `Ops` repeats a constant, rotates, and has the functions of
// the rounds. `words`: of the block.
template <class Ops, class V, int kFirst, int kLast>
inline __attribute__((always_inline)) void md5_steps(V& a, V& b, V& c, V& d, const V (&words)[16]) {
  if constexpr (kFirst < kLast) {
    constexpr Md5Step kStep = kMd5Steps[kFirst];
    V f;
    if constexpr (kFirst < 16) {
      f = Ops::choose(b, c, d);
    } else if constexpr (kFirst < 32) {
      f = Ops::choose(d, b, c);
    } else if constexpr (kFirst < 48) {
      f = Ops::parity(b, c, d);
    } else {
      f = Ops::last(b, c, d);
    }
    a = b + Ops::template turn<kStep.turn>(f + (a + words[kStep.word] + Ops::all(kStep.constant)));
    md5_steps<Ops, V, kFirst + 1, kLast>(d, a, b, c, words);
  }
}

template <class Ops, class V>
inline __attribute__((always_inline)) void md5_block(V (&state)[4], const V (&words)[16]) {
  V a = state[0], b = state[1], c = state[2], d = state[3];
  md5_steps<Ops, V, 0, 64>(a, b, c, d, words);
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
}

}  // namespace
}  // namespace ff::simd
