// Complex numbers, for the CPU and for CUDA alike; sources that have none of them do without this text. Infinite and NaN
// operands give what C's functions give (Annex G of C99). Inverse functions are Kahan's: Branch cuts for complex
// elementary functions (1987).

namespace sr {

template <typename T>
struct complex {
  T re, im;

  complex() = default;
  DEVICE inline complex(T real, T imaginary) : re(real), im(imaginary) {}
  template <typename U>
  DEVICE inline complex(U real) : re(T(real)), im(T(0)) {}
  template <typename U>
  DEVICE inline complex(complex<U> other) : re(T(other.re)), im(T(other.im)) {}

  DEVICE inline explicit operator bool() const { return re != T(0) || im != T(0); }
  DEVICE inline complex operator-() const { return {-re, -im}; }
  DEVICE inline complex& operator+=(complex b) { return *this = *this + b; }
  DEVICE inline complex& operator-=(complex b) { return *this = *this - b; }
  DEVICE inline complex& operator*=(complex b) { return *this = *this * b; }
  DEVICE inline complex& operator/=(complex b) { return *this = *this / b; }

  friend DEVICE inline complex operator+(complex a, complex b) { return {a.re + b.re, a.im + b.im}; }
  friend DEVICE inline complex operator-(complex a, complex b) { return {a.re - b.re, a.im - b.im}; }
  friend DEVICE inline complex operator*(complex a, complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  // Smith's: nothing is squared, so that nothing overflows on the way.
  friend DEVICE inline complex operator/(complex a, complex b) {
    if (::fabs(b.re) >= ::fabs(b.im)) {
      if (b.re == T(0) && b.im == T(0)) return {a.re / ::fabs(b.re), a.im / ::fabs(b.re)};
      const T ratio = b.im / b.re, scale = T(1) / (b.re + b.im * ratio);
      return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
    }
    const T ratio = b.re / b.im, scale = T(1) / (b.re * ratio + b.im);
    return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
  }
  friend DEVICE inline bool operator==(complex a, complex b) { return a.re == b.re && a.im == b.im; }
  friend DEVICE inline bool operator!=(complex a, complex b) { return a.re != b.re || a.im != b.im; }
};

// The type of the parts: its precision, and the numbers beyond which formulas change.
template <typename T>
struct Parts;
template <>
struct Parts<float> {
  static constexpr float large = 4096.0f, huge = 8.5e37f, tiny = 4.8e-38f, steep = 11.0f, exp_limit = 88.0f;
  static constexpr float up = 16777216.0f, root_up = 4096.0f, half_pi = 1.5707964f, ln2 = 0.6931472f, ln10 = 2.3025851f;
};
template <>
struct Parts<double> {
  static constexpr double large = 134217728.0, huge = 4.4e307, tiny = 9e-308, steep = 22.0, exp_limit = 709.0;
  static constexpr double up = 18014398509481984.0, root_up = 134217728.0, half_pi = 1.5707963267948966;
  static constexpr double ln2 = 0.6931471805599453, ln10 = 2.302585092994046;
};

template <typename T>
DEVICE inline T sign_of(T size, T sign) {
  return ::copysign(size, sign);
}

template <typename T>
DEVICE inline T real(complex<T> z) {
  return z.re;
}

template <typename T>
DEVICE inline T imag(complex<T> z) {
  return z.im;
}

template <typename T>
DEVICE inline complex<T> conj(complex<T> z) {
  return {z.re, -z.im};
}

template <typename T>
DEVICE inline complex<T> of_parts(T real, typename Same<T>::type imaginary) {
  return {real, imaginary};
}

template <typename T>
DEVICE inline T abs(complex<T> z) {
  return ::hypot(z.re, z.im);
}

template <typename T>
DEVICE inline T angle(complex<T> z) {
  return z.re != z.re ? z.re : ::atan2(z.im, z.re);
}

template <typename T>
DEVICE inline bool isnan(complex<T> z) {
  return z.re != z.re || z.im != z.im;
}

template <typename T>
DEVICE inline bool isinf(complex<T> z) {
  return isinf(z.re) || isinf(z.im);
}

template <typename T>
DEVICE inline bool isfinite(complex<T> z) {
  return isfinite(z.re) && isfinite(z.im);
}

template <typename T>
DEVICE inline complex<T> sign(complex<T> z) {
  if (isnan(z)) return {T(NAN), T(NAN)};
  const T size = abs(z);
  return size == T(0) ? complex<T>(T(0)) : complex<T>(z.re / size, z.im / size);
}

template <typename T>
DEVICE inline complex<T> round(complex<T> z) {
  return {::rint(z.re), ::rint(z.im)};
}

// The parts of e^x · cos(y) and e^x · sin(y), also where e^x alone overflows.
template <typename T>
DEVICE inline complex<T> scaled_turn(T x, T y) {
  if (x > Parts<T>::exp_limit && isfinite(x)) {
    const T root = ::exp(x / T(2));
    return {root * ::cos(y) * root, root * ::sin(y) * root};
  }
  const T size = ::exp(x);
  return {size * ::cos(y), size * ::sin(y)};
}

template <typename T>
DEVICE inline complex<T> exp(complex<T> z) {
  if (z.im == T(0)) return {::exp(z.re), z.im};
  if (!isfinite(z.im)) {
    if (isinf(z.re)) return z.re > T(0) ? complex<T>(z.re, T(NAN)) : complex<T>(T(0), T(0));
    return {T(NAN), T(NAN)};
  }
  return scaled_turn(z.re, z.im);
}

template <typename T>
DEVICE inline complex<T> expm1(complex<T> z) {
  if (!isfinite(z)) {
    const complex<T> power = exp(z);
    return {power.re - T(1), power.im};
  }
  const T half = ::sin(z.im / T(2));
  const complex<T> power = scaled_turn(z.re, z.im);
  return {::expm1(z.re) * ::cos(z.im) - T(2) * half * half, z.im == T(0) ? z.im : power.im};
}

// The logarithm of the absolute value, precise where that is near 1.
template <typename T>
DEVICE inline T log_abs(complex<T> z) {
  if (isinf(z)) return T(INFINITY);
  const T x = ::fabs(z.re), y = ::fabs(z.im), large = x > y ? x : y, small = x > y ? y : x;
  if (isnan(z)) return T(NAN);
  if (large == T(0)) return -T(INFINITY);
  if (large > T(0.5) && large < T(2)) return ::log1p((large - T(1)) * (large + T(1)) + small * small) / T(2);
  const T ratio = small / large;
  return ::log(large) + ::log1p(ratio * ratio) / T(2);
}

template <typename T>
DEVICE inline complex<T> log(complex<T> z) {
  return {log_abs(z), ::atan2(z.im, z.re)};
}

template <typename T>
DEVICE inline complex<T> log2(complex<T> z) {
  return {log_abs(z) / Parts<T>::ln2, ::atan2(z.im, z.re) / Parts<T>::ln2};
}

template <typename T>
DEVICE inline complex<T> log10(complex<T> z) {
  return {log_abs(z) / Parts<T>::ln10, ::atan2(z.im, z.re) / Parts<T>::ln10};
}

template <typename T>
DEVICE inline complex<T> log1p(complex<T> z) {
  const complex<T> more{z.re + T(1), z.im};
  if (!(::fabs(z.re) < T(0.5) && ::fabs(z.im) < T(0.5))) return log(more);
  return {::log1p(z.re * (T(2) + z.re) + z.im * z.im) / T(2), ::atan2(z.im, more.re)};
}

template <typename T>
DEVICE inline complex<T> sqrt(complex<T> z) {
  if (z.re == T(0) && z.im == T(0)) return {T(0), z.im};
  if (isinf(z.im)) return {T(INFINITY), z.im};
  if (isinf(z.re)) {
    const T other = z.im != z.im ? z.im : T(0);
    return z.re > T(0) ? complex<T>(z.re, sign_of(other, z.im)) : complex<T>(other, sign_of(-z.re, z.im));
  }
  if (isnan(z)) return {T(NAN), T(NAN)};
  T scale = T(1);
  const T x = ::fabs(z.re), y = ::fabs(z.im), large = x > y ? x : y;
  if (large > Parts<T>::huge) {
    z = {z.re / T(4), z.im / T(4)};
    scale = T(2);
  } else if (large < Parts<T>::tiny) {
    z = {z.re * Parts<T>::up, z.im * Parts<T>::up};
    scale = T(1) / Parts<T>::root_up;
  }
  const T root = ::sqrt((::fabs(z.re) + abs(z)) / T(2));
  if (z.re >= T(0)) return {root * scale, z.im / (T(2) * root) * scale};
  return {::fabs(z.im) / (T(2) * root) * scale, sign_of(root, z.im) * scale};
}

template <typename T>
DEVICE inline complex<T> rsqrt(complex<T> z) {
  return complex<T>(T(1)) / sqrt(z);
}

template <typename T>
DEVICE inline complex<T> sinh(complex<T> z) {
  if (z.im == T(0)) return {::sinh(z.re), z.im};
  if (!isfinite(z.im)) return {z.re == T(0) || isinf(z.re) ? z.re : T(NAN), T(NAN)};
  if (z.re == T(0)) return {z.re * ::cos(z.im), ::sin(z.im)};
  if (::fabs(z.re) > Parts<T>::exp_limit) {
    const complex<T> turned = scaled_turn(::fabs(z.re) - Parts<T>::ln2, z.im);
    return {z.re > T(0) ? turned.re : -turned.re, turned.im};
  }
  return {::sinh(z.re) * ::cos(z.im), ::cosh(z.re) * ::sin(z.im)};
}

template <typename T>
DEVICE inline complex<T> cosh(complex<T> z) {
  if (z.im == T(0)) return {::cosh(z.re), z.re < T(0) ? -z.im : z.im};
  if (!isfinite(z.im)) return {isinf(z.re) ? ::fabs(z.re) : T(NAN), z.re == T(0) ? z.re : T(NAN)};
  if (z.re == T(0)) return {::cos(z.im), z.re * ::sin(z.im)};
  if (::fabs(z.re) > Parts<T>::exp_limit) {
    const complex<T> turned = scaled_turn(::fabs(z.re) - Parts<T>::ln2, z.im);
    return {turned.re, z.re > T(0) ? turned.im : -turned.im};
  }
  return {::cosh(z.re) * ::cos(z.im), ::sinh(z.re) * ::sin(z.im)};
}

template <typename T>
DEVICE inline complex<T> tanh(complex<T> z) {
  if (z.im == T(0)) return {::tanh(z.re), z.im};
  if (::fabs(z.re) > Parts<T>::steep && (isinf(z.re) || isfinite(z.im))) {
    const T turn = isfinite(z.im) ? T(4) * ::sin(z.im) * ::cos(z.im) : sign_of(T(1), z.im);
    return {sign_of(T(1), z.re), turn * ::exp(-T(2) * ::fabs(z.re))};
  }
  if (!isfinite(z.im)) return {z.re == T(0) ? z.re : T(NAN), T(NAN)};
  const T slope = ::tan(z.im), rise = ::sinh(z.re), beta = T(1) + slope * slope, root = ::sqrt(T(1) + rise * rise);
  if (isinf(slope) || isinf(beta)) return {root / rise, T(1) / slope};
  const T below = T(1) + beta * rise * rise;
  return {beta * root * rise / below, slope / below};
}

// Functions on the line through 0 and i are those on the line through 0 and 1, turned.
template <typename T>
DEVICE inline complex<T> turned(complex<T> z) {
  return {-z.im, z.re};
}

template <typename T>
DEVICE inline complex<T> turned_back(complex<T> z) {
  return {z.im, -z.re};
}

template <typename T>
DEVICE inline complex<T> sin(complex<T> z) {
  return turned_back(sinh(turned(z)));
}

template <typename T>
DEVICE inline complex<T> cos(complex<T> z) {
  return cosh(turned(z));
}

template <typename T>
DEVICE inline complex<T> tan(complex<T> z) {
  return turned_back(tanh(turned(z)));
}

template <typename T>
DEVICE inline bool is_large(complex<T> z) {
  return ::fabs(z.re) > Parts<T>::large || ::fabs(z.im) > Parts<T>::large;
}

template <typename T>
DEVICE inline complex<T> asinh(complex<T> z) {
  if (is_large(z)) return {sign_of(log_abs(z) + Parts<T>::ln2, z.re), ::atan2(z.im, ::fabs(z.re))};
  if (isnan(z)) return {T(NAN), z.im == T(0) ? z.im : T(NAN)};
  const complex<T> below = sqrt(complex<T>(T(1) + z.im, -z.re)), above = sqrt(complex<T>(T(1) - z.im, z.re));
  return {::asinh(below.re * above.im - below.im * above.re), ::atan2(z.im, (below * above).re)};
}

template <typename T>
DEVICE inline complex<T> asin(complex<T> z) {
  return turned_back(asinh(turned(z)));
}

template <typename T>
DEVICE inline complex<T> acos(complex<T> z) {
  if (is_large(z)) return {::atan2(::fabs(z.im), z.re), -sign_of(log_abs(z) + Parts<T>::ln2, z.im)};
  if (isnan(z)) return {z.re == T(0) ? Parts<T>::half_pi : T(NAN), T(NAN)};
  const complex<T> below = sqrt(complex<T>(T(1) - z.re, -z.im)), above = sqrt(complex<T>(T(1) + z.re, z.im));
  return {T(2) * ::atan2(below.re, above.re), ::asinh(above.re * below.im - above.im * below.re)};
}

template <typename T>
DEVICE inline complex<T> acosh(complex<T> z) {
  const complex<T> found = acos(z);
  return {::fabs(found.im), sign_of(found.re, z.im)};
}

template <typename T>
DEVICE inline complex<T> atanh(complex<T> z) {
  const T x = ::fabs(z.re), y = ::fabs(z.im);
  if (isnan(z) && !isinf(z)) return {z.re == T(0) ? z.re : T(NAN), T(NAN)};
  if (is_large(z)) {
    const T ratio = x > y ? y / x : x / y;
    const T real = isinf(z) ? T(0) : x > y ? T(1) / (x + y * ratio) : ratio / (x * ratio + y);
    return {sign_of(real, z.re), z.im != z.im ? z.im : sign_of(Parts<T>::half_pi, z.im)};
  }
  T real;
  if (x == T(1) && y * y < Parts<T>::tiny) {
    real = (Parts<T>::ln2 - ::log(y)) / T(2);
  } else {
    real = ::log1p(T(4) * x / ((T(1) - x) * (T(1) - x) + y * y)) / T(4);
  }
  return {sign_of(real, z.re), ::atan2(T(2) * z.im, (T(1) - x) * (T(1) + x) - y * y) / T(2)};
}

template <typename T>
DEVICE inline complex<T> atan(complex<T> z) {
  return turned_back(atanh(turned(z)));
}

template <typename T>
DEVICE inline complex<T> pow(complex<T> base, complex<T> exponent) {
  if (exponent == complex<T>(T(0))) return {T(1), T(0)};
  if (base == complex<T>(T(0))) return exponent.re > T(0) ? complex<T>(T(0)) : complex<T>(T(NAN), T(NAN));
  return exp(exponent * log(base));
}

}  // namespace sr
