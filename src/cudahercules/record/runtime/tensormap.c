/* Tensor maps: the arguments are kept, and 128 tagged bytes stand in for the descriptor.
 *
 * The tag is 16 bytes of magic, the map's number twice (plain and inverted), and a fill that depends
 * on the number; the parser finds it in parameters and uploads and checks all 128 bytes.
 */
#include "state.h"

typedef struct {
    int im2col;
    unsigned type, rank, interleave, swizzle, promotion, fill, channels, pixels;
    Address address;
    uint64_t dimensions[5], strides[5];
    unsigned box[5], steps[5];
    int lower[3], upper[3];
} Map;

static Map maps[MAX_TENSOR_MAPS];
static int map_count;

static const unsigned char magic[16] = {0x9d, 'H', 'e', 'r', 'c', 'u', 'l', 'e', 's', 'T', 'M', 'a', 'p', 0xc3, 0x5a, 0xe1};

static void tag(unsigned char *out, uint32_t number) {
    memcpy(out, magic, 16);
    uint32_t inverse = ~number;
    memcpy(out + 16, &number, 4);
    memcpy(out + 20, &inverse, 4);
    for (int i = 24; i < 128; i++) out[i] = (unsigned char)(0xa5 ^ (i * 7) ^ (number * 31));
}

static CUresult invalid(const char *call, const char *why) {
    /* Driver calls leave the runtime's last error alone, and whether the result is looked at cannot be seen. */
    snprintf(S.failed, sizeof S.failed, "%s: %s", call, why);
    return CUDA_ERROR_INVALID_VALUE;
}

static const unsigned element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 0, 0, 0};

static const char *check(const Map *m, bool box_given) {
    if (m->rank < 1 || m->rank > 5) return "the rank must be 1 to 5";
    if (m->im2col && m->rank < 3) return "im2col maps have a rank of 3 to 5";
    if (m->type > 15) return "unknown data type";
    if (m->interleave > 2 || m->swizzle > 6 || m->promotion > 3 || m->fill > 1)
        return "an enumeration is out of range";
    if (m->address % (m->interleave == 2 ? 32 : 16)) return "the global address is not aligned to 16 bytes";
    for (unsigned i = 0; i < m->rank; i++) {
        if (m->dimensions[i] == 0 || m->dimensions[i] > 1ull << 32) return "a dimension is 0 or over 2^32";
        if (m->steps[i] < 1 || m->steps[i] > 8) return "an element stride is outside 1 to 8";
        if (box_given && (m->box[i] < 1 || m->box[i] > 256)) return "a box dimension is outside 1 to 256";
    }
    for (unsigned i = 0; i + 1 < m->rank; i++)
        if (m->strides[i] % 16 || m->strides[i] >= 1ull << 40) return "a stride is no multiple of 16 or over 2^40";
    unsigned bytes = element_bytes[m->type];
    if (box_given && bytes && m->interleave == 0 && m->box[0] * bytes % 16)
        return "the box's inner dimension is no multiple of 16 bytes";
    if (box_given && bytes && m->interleave == 0 && m->swizzle >= 1 && m->swizzle <= 3 &&
        m->box[0] * bytes > 16u << m->swizzle)
        return "the box's inner dimension is larger than the swizzle span";
    return NULL;
}

static CUresult keep(CUtensorMap *out, const Map *map, const char *call) {
    if ((uintptr_t)out % 64) return invalid(call, "the descriptor is not aligned to 64 bytes");
    if (!region_of(map->address, 0) && !symbol_at(map->address, 0))
        return invalid(call, "the global address lies in no buffer");
    int number = 0;
    while (number < map_count && memcmp(&maps[number], map, sizeof *map)) number++;
    if (number == MAX_TENSOR_MAPS) {
        refuse("%s: more than %d different tensor maps", call, MAX_TENSOR_MAPS);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (number == map_count) maps[map_count++] = *map;
    tag((unsigned char *)out, (uint32_t)number);
    return CUDA_SUCCESS;
}

static void fill_shape(Map *map, const cuuint64_t *dimensions, const cuuint64_t *strides, const cuuint32_t *steps) {
    for (unsigned i = 0; i < map->rank && i < 5; i++) {
        map->dimensions[i] = dimensions[i];
        map->steps[i] = steps[i];
        if (i + 1 < map->rank) map->strides[i] = strides[i];
    }
}

EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                       const cuuint64_t *dimensions, const cuuint64_t *strides,
                                       const cuuint32_t *box, const cuuint32_t *steps,
                                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    ENTER;
    Map map;
    memset(&map, 0, sizeof map); /* padding too: maps are compared as bytes */
    map.type = type, map.rank = rank, map.address = (Address)address;
    map.interleave = interleave, map.swizzle = swizzle, map.promotion = promotion, map.fill = fill;
    fill_shape(&map, dimensions, strides, steps);
    for (unsigned i = 0; i < rank && i < 5; i++) map.box[i] = box[i];
    const char *wrong = check(&map, true);
    return wrong ? invalid("cuTensorMapEncodeTiled", wrong) : keep(out, &map, "cuTensorMapEncodeTiled");
}

EXPORT CUresult cuTensorMapEncodeIm2col(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                        const cuuint64_t *dimensions, const cuuint64_t *strides, const int *lower,
                                        const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                        const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                        CUtensorMapFloatOOBfill fill) {
    ENTER;
    Map map;
    memset(&map, 0, sizeof map);
    map.im2col = 1, map.type = type, map.rank = rank, map.address = (Address)address;
    map.interleave = interleave, map.swizzle = swizzle, map.promotion = promotion, map.fill = fill;
    map.channels = channels, map.pixels = pixels;
    fill_shape(&map, dimensions, strides, steps);
    for (unsigned i = 0; i + 2 < rank && i < 3; i++) map.lower[i] = lower[i], map.upper[i] = upper[i];
    const char *wrong = check(&map, false);
    if (!wrong && (channels > 256 || pixels > 1024)) wrong = "channels per pixel over 256 or pixels over 1024";
    return wrong ? invalid("cuTensorMapEncodeIm2col", wrong) : keep(out, &map, "cuTensorMapEncodeIm2col");
}

static void write_list(FILE *out, const char *key, const uint64_t *values, unsigned count) {
    fprintf(out, ", \"%s\": [", key);
    for (unsigned i = 0; i < count; i++) fprintf(out, "%s%llu", i ? ", " : "", (unsigned long long)values[i]);
    fputc(']', out);
}

static void write_small(FILE *out, const char *key, const void *values, unsigned count, bool is_signed) {
    fprintf(out, ", \"%s\": [", key);
    for (unsigned i = 0; i < count; i++)
        fprintf(out, is_signed ? "%s%d" : "%s%u", i ? ", " : "", ((const unsigned *)values)[i]);
    fputc(']', out);
}

void write_tensor_maps(FILE *out) {
    for (int i = 0; i < map_count; i++) {
        const Map *m = &maps[i];
        fprintf(out,
                "{\"tensor_map\": {\"kind\": \"%s\", \"data_type\": %u, \"rank\": %u, \"address\": %llu, "
                "\"interleave\": %u, \"swizzle\": %u, \"l2_promotion\": %u, \"oob_fill\": %u, "
                "\"channels_per_pixel\": %u, \"pixels_per_column\": %u",
                m->im2col ? "im2col" : "tiled", m->type, m->rank, (unsigned long long)m->address, m->interleave,
                m->swizzle, m->promotion, m->fill, m->channels, m->pixels);
        write_list(out, "dimensions", m->dimensions, m->rank);
        write_list(out, "strides", m->strides, m->rank - 1);
        write_small(out, "box", m->box, m->im2col ? 0 : m->rank, false);
        write_small(out, "element_strides", m->steps, m->rank, false);
        write_small(out, "pixel_box_lower", m->lower, m->im2col ? m->rank - 2 : 0, true);
        write_small(out, "pixel_box_upper", m->upper, m->im2col ? m->rank - 2 : 0, true);
        fputs("}}\n", out);
    }
}
