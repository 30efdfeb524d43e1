// Scalar functions that C does not have, for the CPU and for CUDA alike. Both preludes hold this text in their namespace.

// Types without a sign are not asked, of which compilers would warn.
template <typename T>
DEVICE inline bool is_negative(T a) {
  if constexpr (T(-1) > T(1)) {
    return false;
  } else {
    return a < T(0);
  }
}

template <typename T>
DEVICE inline T abs(T a) {
  return is_negative(a) ? -a : a;
}

template <typename T>
DEVICE inline bool isnan(T a) {
  return a != a;
}

template <typename T>
DEVICE inline bool isinf(T a) {
  return a == a && a - a != a - a;
}

template <typename T>
DEVICE inline bool isfinite(T a) {
  return a - a == a - a;
}

// NaN has the sign NaN.
template <typename T>
DEVICE inline T sign(T a) {
  return a != a ? a : T((a > T(0)) - is_negative(a));
}

// Whole numbers divided as Python does, quotients rounded down; by 0 both are 0.
template <typename T>
DEVICE inline T floor_divide(T a, typename Same<T>::type b) {
  if (b == 0) return 0;
  if (is_negative(b) && b == T(-1)) return T(0 - a);  // the least number has no opposite: it wraps
  const T quotient = a / b;
  return quotient * b != a && is_negative(a) != is_negative(b) ? quotient - 1 : quotient;
}

template <typename T>
DEVICE inline T remainder(T a, typename Same<T>::type b) {
  if (b == 0 || (is_negative(b) && b == T(-1))) return 0;
  const T rest = a % b;
  return rest != 0 && is_negative(rest) != is_negative(b) ? rest + b : rest;
}

DEVICE inline float fmod(float a, float b) { return fmodf(a, b); }
DEVICE inline double fmod(double a, double b) { return ::fmod(a, b); }
DEVICE inline float copysign(float a, float b) { return copysignf(a, b); }
DEVICE inline double copysign(double a, double b) { return ::copysign(a, b); }
DEVICE inline float floor(float a) { return floorf(a); }
DEVICE inline double floor(double a) { return ::floor(a); }

// Floats: infinite operands give the infinite or zero quotient that division gives.
template <typename T>
DEVICE inline T float_floor_divide(T a, T b) {
  if (b == T(0) || isinf(a) || isinf(b)) return a / b;
  const T rest = fmod(a, b);
  T quotient = (a - rest) / b;
  if (rest != T(0) && (rest < T(0)) != (b < T(0))) quotient -= T(1);
  if (quotient == T(0)) return copysign(T(0), a / b);
  const T down = floor(quotient);
  return quotient - down > T(0.5) ? down + T(1) : down;
}

// With the sign of the divisor, that of a zero too.
template <typename T>
DEVICE inline T float_remainder(T a, T b) {
  T rest = fmod(a, b);
  if (rest != T(0) && (rest < T(0)) != (b < T(0))) rest += b;
  return copysign(rest, b);
}

DEVICE inline float floor_divide(float a, float b) { return float_floor_divide(a, b); }
DEVICE inline double floor_divide(double a, double b) { return float_floor_divide(a, b); }
DEVICE inline float remainder(float a, float b) { return float_remainder(a, b); }
DEVICE inline double remainder(double a, double b) { return float_remainder(a, b); }

// A whole power, which wraps. Of negative exponents only the powers of 1 and -1 are whole; all others are 0.
template <typename T>
DEVICE inline T pow(T base, typename Same<T>::type exponent) {
  if (is_negative(exponent)) {
    if (base != T(1) && T(base + 1) != T(0)) return 0;
    return base == T(1) || exponent % 2 == 0 ? T(1) : base;
  }
  T result = 1;
  for (; exponent != 0; exponent /= 2) {
    if (exponent % 2 != 0) result = T(result * base);
    base = T(base * base);
  }
  return result;
}

// Bits that are moved by more than there are, or by a negative number, are all moved out.
template <typename T>
DEVICE inline T left_shift(T a, typename Same<T>::type by) {
  const bool inside = !is_negative(by) && (unsigned long long)(by) < 8 * sizeof(T);
  return inside ? T((unsigned long long)(a) << by) : T(0);
}

template <typename T>
DEVICE inline T right_shift(T a, typename Same<T>::type by) {
  const bool inside = !is_negative(by) && (unsigned long long)(by) < 8 * sizeof(T);
  return inside ? T(a >> by) : is_negative(a) ? T(-1) : T(0);
}

template <typename T>
DEVICE inline bool signbit(T a) {
  return is_negative(a);
}

template <int Bytes>
struct Bits {
  using type = unsigned long long;
};
template <>
struct Bits<4> {
  using type = unsigned;
};
template <>
struct Bits<2> {
  using type = unsigned short;
};

// The bits of a float, as a whole number.
template <typename T>
DEVICE inline typename Bits<sizeof(T)>::type bits_of(T a) {
  typename Bits<sizeof(T)>::type bits;
  memcpy(&bits, &a, sizeof(T));
  return bits;
}

DEVICE inline bool signbit(float a) { return bits_of(a) >> 31 != 0; }
DEVICE inline bool signbit(double a) { return bits_of(a) >> 63 != 0; }

// The next number after a towards b, for floats of any width: adjacent numbers have adjacent bits.
template <typename T>
DEVICE inline T nextafter(T a, typename Same<T>::type b) {
  using Word = typename Bits<sizeof(T)>::type;
  if (a != a || b != b) return a != a ? a : b;
  if (a == b) return b;
  Word bits = bits_of(a);
  const Word sign = Word(Word(1) << (8 * sizeof(T) - 1));
  if (Word(bits & ~sign) == 0) {
    bits = Word(1 | (bits_of(b) & sign));  // the least of numbers, on the side of b
  } else {
    bits = Word((a < b) == ((bits & sign) == 0) ? bits + 1 : bits - 1);
  }
  T next;
  memcpy(&next, &bits, sizeof(T));
  return next;
}

// Philox 4x32-10: word `place` of a call, 32 random bits, which are lane `place` mod 4 of the block with the counter
// (place / 4, call), encrypted under the seed.
DEVICE inline int64_t philox(int64_t place, int64_t seed, int64_t call) {
  const uint64_t block = uint64_t(place) >> 2;
  unsigned a = unsigned(block), b = unsigned(block >> 32), c = unsigned(call), d = unsigned(uint64_t(call) >> 32);
  unsigned low = unsigned(seed), high = unsigned(uint64_t(seed) >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t(0xD2511F53u) * a, right = uint64_t(0xCD9E8D57u) * c;
    a = unsigned(right >> 32) ^ b ^ low;
    b = unsigned(right);
    c = unsigned(left >> 32) ^ d ^ high;
    d = unsigned(left);
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  const int lane = int(place & 3);
  return int64_t(lane == 0 ? a : lane == 1 ? b : lane == 2 ? c : d);
}
