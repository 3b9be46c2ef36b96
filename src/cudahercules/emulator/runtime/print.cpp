// Device printf: the arguments lie in a buffer as the compiler packed them.
#include <cstdio>

#include "state.hpp"

namespace rt {

namespace {

constexpr size_t most_output = 64 << 10;
constexpr int32_t most_width = 256;

// Reads the packed arguments one after another, checked like any load of the kernel.
struct Arguments {
  Thread& t;
  uint64_t at;
  uint32_t site;

  template <class T>
  T next() {
    at = (at + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    Slot slot{0, 0};
    resolve(t, slot, at, sizeof(T), site, access_read, true);
    T value = load<T>(reinterpret_cast<const uint8_t*>(at));
    at += sizeof(T);
    return value;
  }
};

template <class T>
void append(std::string& out, const std::string& spec, T value) {
  char buffer[512];
  const int n = snprintf(buffer, sizeof buffer, spec.c_str(), value);
  if (n > 0) out.append(buffer, size_t(n) < sizeof buffer ? size_t(n) : sizeof buffer - 1);
}

}  // namespace

uint32_t print(Thread& t, uint64_t format, uint64_t arguments, uint32_t site) {
  std::string text, out;
  if (!device_string(format, text)) {
    Slot slot{0, 0};
    resolve(t, slot, format, 1, site, access_read, true);  // reports an address outside memory
  }
  Arguments args{t, arguments, site};
  uint32_t count = 0;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    std::string spec = "%";
    int longs = 0;
    for (i++; i < text.size(); i++) {
      const char c = text[i];
      if (c == '*') {
        const auto width = args.next<int32_t>();
        spec += std::to_string(width > most_width ? most_width : width < -most_width ? -most_width : width);
        count++;
      } else if (std::string("-+ #0123456789.").find(c) != std::string::npos) {
        if (spec.size() < 24) spec += c;
      } else if (c == 'l' || c == 'z' || c == 'j' || c == 't') {
        longs += c == 'l' ? 1 : 2;
      } else if (c != 'h') {
        break;
      }
    }
    if (i >= text.size()) break;
    const char c = text[i];
    if (c != '%') count++;
    switch (c) {
      case '%':
        out += '%';
        break;
      case 'd':
      case 'i':
        if (longs)
          append(out, spec + "lld", (long long)args.next<int64_t>());
        else
          append(out, spec + 'd', args.next<int32_t>());
        break;
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        if (longs)
          append(out, spec + "ll" + c, (unsigned long long)args.next<uint64_t>());
        else
          append(out, spec + c, args.next<uint32_t>());
        break;
      case 'c':
        append(out, spec + c, args.next<int32_t>());
        break;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
      case 'a':
      case 'A':
        append(out, spec + c, args.next<double>());
        break;
      case 'p':
        append(out, spec + "p", reinterpret_cast<void*>(args.next<uint64_t>()));
        break;
      case 's': {
        const auto address = args.next<uint64_t>();
        std::string value;
        if (address ? device_string(address, value) : (value = "(null)", true))
          append(out, spec + 's', value.c_str());
        else
          out += "(not a device string)";
        break;
      }
      default:
        out += spec + c;
    }
  }
  pthread_mutex_lock(&job.print_mutex);
  if (job.printed.size() < most_output) job.printed += out.substr(0, most_output - job.printed.size());
  pthread_mutex_unlock(&job.print_mutex);
  return count;
}

}  // namespace rt
