/* A USB camera without hardware: an LD_PRELOAD shim that makes plain files look like V4L2 capture devices, as uvcvideo's.
 *
 * Every existing file whose real path begins with $FAKEV4L2_DEV is a camera. Its one line of text says what it is and how
 * it behaves:
 *
 *     640x480,1280x720@30 YUYV,MJPG live          (sizes @ frames a second, formats, mode)
 *
 * Formats are MJPG, YUYV, UYVY, NV12, GREY. It has the controls brightness, auto_exposure and exposure_time_absolute, of which
 * the first makes its pictures brighter or darker.
 *
 * The mode is `live`, or `stall` (open, and no picture comes), and may be rewritten while the camera streams. Removing the
 * file unplugs the camera, writing it anew plugs it in again. Pictures carry the stamp of readstamp.py, and their times
 * are the monotonic clock's, as a real driver's are. It works for C and for Rust's std, not for static binaries.
 *
 * cc -O2 -Wall -shared -fPIC -o libfakev4l2.so fakev4l2.c -ljpeg -ldl -lpthread
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <jpeglib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include <linux/videodev2.h>

#define REAL(name) ({ static __typeof__(&name) f; if (!f) f = dlsym(RTLD_NEXT, #name); f; })
#define MAXBUF 32
#define MAXFD 4096

enum { FREE, QUEUED, DONE };
struct cam {
    char path[PATH_MAX], mode[16];
    int event, refs;                                    /* frames done (eventfd); open fds, each a dup of it */
    int memfd, lockfd, nonblock, locked;
    ino_t inode;
    struct timespec mtime;
    struct { int w, h; } sizes[8];
    int nsizes, fps, maxfps;
    uint32_t formats[6];
    int nformats;
    struct v4l2_pix_format pix;
    int nbuf, state[MAXBUF], queue[MAXBUF], nqueue, done[MAXBUF], ndone;
    struct v4l2_buffer info[MAXBUF];
    int streaming, gone;
    uint32_t seq;
    uint8_t *luma, *mem;
    size_t slot;
    pthread_t thread;
    pthread_mutex_t lock;
};
static struct cam *cams[MAXFD];
static int values[3] = { 128, 3, 250 };                 /* of the controls: they outlive an open device */

static struct cam *cam_of(int fd) { return fd >= 0 && fd < MAXFD ? cams[fd] : NULL; }

static int is_fake(const char *path, char *real)
{
    const char *prefix = getenv("FAKEV4L2_DEV");
    char buf[PATH_MAX];
    if (!path || !realpath(path, real ? real : buf)) return 0;
    return prefix && !strncmp(real ? real : buf, prefix, strlen(prefix));
}

/* ---- the device file: its text, and whether it is still plugged in ---- */

static int read_config(struct cam *c, int everything)
{
    char text[256] = "", sizes[64] = "640x480", formats[32] = "YUYV,MJPG", mode[16] = "live", *p, *save;
    int fps = 30, fd = REAL(open)(c->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
    REAL(close)(fd);
    sscanf(text, "%63[0-9x,]@%d %31s %15s", sizes, &fps, formats, mode);
    strcpy(c->mode, mode);
    if (!everything) return 0;
    c->nsizes = c->nformats = 0;
    for (p = strtok_r(sizes, ",", &save); p && c->nsizes < 8; p = strtok_r(NULL, ",", &save))
        if (sscanf(p, "%dx%d", &c->sizes[c->nsizes].w, &c->sizes[c->nsizes].h) == 2) c->nsizes++;
    for (p = strtok_r(formats, ",", &save); p && c->nformats < 6; p = strtok_r(NULL, ",", &save))
        c->formats[c->nformats++] = v4l2_fourcc(p[0], p[1], p[2], p[3]);
    c->fps = c->maxfps = fps > 0 ? fps : 30;
    return c->nsizes && c->nformats ? 0 : -1;
}

static int unplugged(struct cam *c)
{
    struct stat st;
    if (c->gone) return 1;
    if (REAL(stat)(c->path, &st) || st.st_ino != c->inode) {
        uint64_t wake = 1 << 20;                        /* keeps the fd readable: poll() then says POLLERR */
        c->gone = 1;
        if (write(c->event, &wake, 8)) {}
        return 1;
    }
    if (memcmp(&st.st_mtim, &c->mtime, sizeof c->mtime)) {
        c->mtime = st.st_mtim;
        read_config(c, 0);
    }
    return 0;
}

/* ---- pictures ---- */

static void stamp(struct cam *c)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint32_t ms = t.tv_sec * 1000ull + t.tv_nsec / 1000000, n = c->seq & 0xFFFFFF;
    uint8_t crc = 0x5A, bytes[7] = { n >> 16, n >> 8, n, ms >> 24, ms >> 16, ms >> 8, ms };
    for (int i = 0; i < 7; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++) crc = crc & 0x80 ? crc << 1 ^ 7 : crc << 1;
    }
    uint32_t row[2] = { n << 8 | crc, ms };
    int w = c->pix.width, b = w / 32 < 16 ? w / 32 : 16;
    for (int y = 0; y < 2 * b && y < (int)c->pix.height; y++)
        for (int x = 0; x < 32 * b; x++)
            c->luma[y * w + x] = row[y / b] >> (31 - x / b) & 1 ? 235 : 16;
}

static void draw(struct cam *c)
{
    int w = c->pix.width, h = c->pix.height;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            c->luma[y * w + x] = 16 + ((x + 4 * c->seq) & 63) + (y * 32) / h + values[0] / 2;
    stamp(c);
}

static unsigned bits(uint32_t format)                   /* of one pixel */
{
    return format == V4L2_PIX_FMT_GREY ? 8 : format == V4L2_PIX_FMT_NV12 ? 12 : 16;
}

static size_t to_raw(struct cam *c, uint8_t *out)
{
    size_t n = (size_t)c->pix.width * c->pix.height, all = n * bits(c->pix.pixelformat) / 8;
    memset(out, 128, all);
    if (c->pix.pixelformat == V4L2_PIX_FMT_GREY || c->pix.pixelformat == V4L2_PIX_FMT_NV12) memcpy(out, c->luma, n);
    else for (size_t i = 0; i < n; i++) out[2 * i + (c->pix.pixelformat == V4L2_PIX_FMT_UYVY)] = c->luma[i];
    return all;
}

static size_t to_jpeg(struct cam *c, uint8_t *out)
{
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr err;
    unsigned long size = c->slot;
    uint8_t *target = out, line[3 * 4096];
    JSAMPROW row = line;
    j.err = jpeg_std_error(&err);
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &target, &size);
    j.image_width = c->pix.width; j.image_height = c->pix.height;
    j.input_components = 3; j.in_color_space = JCS_YCbCr;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 80, TRUE);
    j.comp_info[0].v_samp_factor = 1;                   /* 4:2:2, as most USB cameras send */
    jpeg_start_compress(&j, TRUE);
    memset(line, 128, sizeof line);
    while (j.next_scanline < j.image_height) {
        for (unsigned x = 0; x < j.image_width; x++) line[3 * x] = c->luma[j.next_scanline * j.image_width + x];
        jpeg_write_scanlines(&j, &row, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    if (target != out) { size = 0; free(target); }      /* did not fit: send an empty frame */
    return size;
}

static void *produce(void *arg)
{
    struct cam *c = arg;
    struct timespec due, now;
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (;;) {
        due.tv_nsec += 1000000000 / c->fps;
        if (due.tv_nsec >= 1000000000) { due.tv_nsec -= 1000000000; due.tv_sec++; }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        pthread_mutex_lock(&c->lock);
        if (!c->streaming || unplugged(c)) break;
        if (strcmp(c->mode, "stall")) {
            if (c->nqueue) {                            /* no free buffer: the frame is lost, its number is not */
                int i = c->queue[0];
                struct v4l2_buffer *b = &c->info[i];
                uint8_t *out = c->mem + i * c->slot;
                uint64_t one = 1;
                memmove(c->queue, c->queue + 1, --c->nqueue * sizeof(int));
                draw(c);
                b->bytesused = c->pix.pixelformat == V4L2_PIX_FMT_MJPEG ? to_jpeg(c, out) : to_raw(c, out);
                b->flags = V4L2_BUF_FLAG_MAPPED | V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
                clock_gettime(CLOCK_MONOTONIC, &now);
                b->timestamp.tv_sec = now.tv_sec; b->timestamp.tv_usec = now.tv_nsec / 1000;
                b->sequence = c->seq; b->field = V4L2_FIELD_NONE;
                c->state[i] = DONE;
                c->done[c->ndone++] = i;
                if (write(c->event, &one, 8)) {}
            }
            c->seq++;
        }
        pthread_mutex_unlock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- ioctls; all but the waiting part of DQBUF run with the lock held ---- */

static void set_format(struct cam *c, struct v4l2_pix_format *p)
{
    int best = 0, ok = 0;
    for (int i = 0; i < c->nformats; i++) ok |= c->formats[i] == p->pixelformat;
    if (!ok) p->pixelformat = c->formats[0];
    for (int i = 1; i < c->nsizes; i++)
        if (abs(c->sizes[i].w - (int)p->width) < abs(c->sizes[best].w - (int)p->width)) best = i;
    p->width = c->sizes[best].w; p->height = c->sizes[best].h;
    p->field = V4L2_FIELD_NONE;
    p->bytesperline = p->pixelformat == V4L2_PIX_FMT_MJPEG ? 0 : bits(p->pixelformat) < 16 ? p->width : 2 * p->width;
    p->sizeimage = p->width * p->height * bits(p->pixelformat) / 8;
    p->colorspace = V4L2_COLORSPACE_SRGB;
    p->priv = V4L2_PIX_FMT_PRIV_MAGIC; p->flags = 0;
    p->ycbcr_enc = p->quantization = p->xfer_func = 0;
}

static void stop(struct cam *c)
{
    uint64_t n;
    if (c->streaming) {
        c->streaming = 0;
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
        pthread_mutex_lock(&c->lock);
    }
    memset(c->state, 0, sizeof c->state);
    c->nqueue = c->ndone = 0;
    while (!c->gone && read(c->event, &n, 8) == 8) {}
}

static void free_buffers(struct cam *c)
{
    if (c->mem) munmap(c->mem, c->nbuf * c->slot);
    if (c->memfd >= 0) REAL(close)(c->memfd);
    free(c->luma);
    c->mem = c->luma = NULL; c->memfd = -1; c->nbuf = 0;
}

static int claim(struct cam *c)                         /* one streaming owner per device, as uvcvideo has it */
{
    if (!c->locked && flock(c->lockfd, LOCK_EX | LOCK_NB)) return -EBUSY;
    c->locked = 1;
    return 0;
}

static int request_buffers(struct cam *c, struct v4l2_requestbuffers *r)
{
    if (r->memory != V4L2_MEMORY_MMAP) return -EINVAL;
    if (c->streaming) return -EBUSY;
    if (claim(c)) return -EBUSY;
    free_buffers(c);
    r->capabilities = V4L2_BUF_CAP_SUPPORTS_MMAP;
    if (!r->count) { flock(c->lockfd, LOCK_UN); c->locked = 0; return 0; }
    c->nbuf = r->count = r->count > MAXBUF ? MAXBUF : r->count < 2 ? 2 : r->count;
    c->slot = (c->pix.sizeimage + 4095) & ~4095ul;
    c->memfd = memfd_create("fakev4l2", MFD_CLOEXEC);
    if (c->memfd < 0 || ftruncate(c->memfd, c->nbuf * c->slot)) return -ENOMEM;
    c->mem = REAL(mmap)(NULL, c->nbuf * c->slot, PROT_READ | PROT_WRITE, MAP_SHARED, c->memfd, 0);
    c->luma = calloc(c->pix.width, c->pix.height);
    memset(c->state, 0, sizeof c->state); c->nqueue = c->ndone = 0;
    memset(c->info, 0, sizeof c->info);
    for (int i = 0; i < c->nbuf; i++)
        c->info[i] = (struct v4l2_buffer){ .index = i, .type = V4L2_BUF_TYPE_VIDEO_CAPTURE, .memory = V4L2_MEMORY_MMAP,
            .length = c->pix.sizeimage, .m.offset = i * c->slot, .flags = V4L2_BUF_FLAG_MAPPED | V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC };
    return 0;
}

static int dequeue(struct cam *c, struct v4l2_buffer *out)
{
    uint64_t n;
    while (!c->ndone || c->gone) {
        if (c->gone) return -ENODEV;
        if (!c->streaming) return -EINVAL;
        if (c->nonblock) return -EAGAIN;
        struct pollfd p = { c->event, POLLIN, 0 };
        pthread_mutex_unlock(&c->lock);
        REAL(poll)(&p, 1, 200);
        pthread_mutex_lock(&c->lock);
    }
    int i = c->done[0];
    memmove(c->done, c->done + 1, --c->ndone * sizeof(int));
    if (read(c->event, &n, 8)) {}
    c->state[i] = FREE;
    *out = c->info[i];
    return 0;
}

static const struct { uint32_t id, type; const char *name; int min, max, def; } controls[3] = {
    { V4L2_CID_BRIGHTNESS, V4L2_CTRL_TYPE_INTEGER, "Brightness", 0, 255, 128 },
    { V4L2_CID_EXPOSURE_AUTO, V4L2_CTRL_TYPE_MENU, "Auto Exposure", 0, 3, 3 },
    { V4L2_CID_EXPOSURE_ABSOLUTE, V4L2_CTRL_TYPE_INTEGER, "Exposure Time, Absolute", 3, 2047, 250 },
};

static int control(uint32_t id)                         /* its number, or that of the first with a greater id */
{
    for (int i = 0; i < 3; i++) {
        if (id & V4L2_CTRL_FLAG_NEXT_CTRL ? controls[i].id > (id & V4L2_CTRL_ID_MASK) : controls[i].id == id) return i;
    }
    return -1;
}

static int handle(struct cam *c, unsigned long req, void *arg)
{
    if (unplugged(c)) return -ENODEV;
    switch ((uint32_t)req) {
    case VIDIOC_QUERYCAP: {
        struct v4l2_capability *q = arg;
        memset(q, 0, sizeof *q);
        strcpy((char *)q->driver, "uvcvideo");
        strcpy((char *)q->card, "Fake Camera");
        snprintf((char *)q->bus_info, sizeof q->bus_info, "usb-fake-%.20s", strrchr(c->path, '/') + 1);
        q->version = 6 << 16 | 1 << 8;
        q->device_caps = V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_STREAMING | V4L2_CAP_EXT_PIX_FORMAT;
        q->capabilities = q->device_caps | V4L2_CAP_DEVICE_CAPS;
        return 0; }
    case VIDIOC_ENUM_FMT: {
        struct v4l2_fmtdesc *f = arg;
        if (f->type != V4L2_BUF_TYPE_VIDEO_CAPTURE || f->index >= (unsigned)c->nformats) return -EINVAL;
        f->pixelformat = c->formats[f->index];
        f->flags = f->pixelformat == V4L2_PIX_FMT_MJPEG ? V4L2_FMT_FLAG_COMPRESSED : 0;
        strcpy((char *)f->description, f->flags ? "Motion-JPEG" : "not compressed");
        return 0; }
    case VIDIOC_ENUM_FRAMESIZES: {
        struct v4l2_frmsizeenum *f = arg;
        if (f->index >= (unsigned)c->nsizes) return -EINVAL;
        f->type = V4L2_FRMSIZE_TYPE_DISCRETE;
        f->discrete.width = c->sizes[f->index].w; f->discrete.height = c->sizes[f->index].h;
        return 0; }
    case VIDIOC_ENUM_FRAMEINTERVALS: {
        struct v4l2_frmivalenum *f = arg;
        if (f->index > 1) return -EINVAL;
        f->type = V4L2_FRMIVAL_TYPE_DISCRETE;
        f->discrete = (struct v4l2_fract){ 1 + f->index, c->maxfps };
        return 0; }
    case VIDIOC_G_FMT: case VIDIOC_S_FMT: case VIDIOC_TRY_FMT: {
        struct v4l2_format *f = arg;
        if (f->type != V4L2_BUF_TYPE_VIDEO_CAPTURE) return -EINVAL;
        if (req == VIDIOC_S_FMT && (c->nbuf || claim(c))) return -EBUSY;
        if (req == VIDIOC_G_FMT) f->fmt.pix = c->pix;
        else set_format(c, &f->fmt.pix);
        if (req == VIDIOC_S_FMT) c->pix = f->fmt.pix;
        return 0; }
    case VIDIOC_G_PARM: case VIDIOC_S_PARM: {
        struct v4l2_streamparm *p = arg;
        struct v4l2_captureparm *cap = &p->parm.capture;
        if (p->type != V4L2_BUF_TYPE_VIDEO_CAPTURE) return -EINVAL;
        if (req == VIDIOC_S_PARM && cap->timeperframe.numerator && !c->streaming)
            c->fps = 4 * cap->timeperframe.denominator < 3 * c->maxfps * cap->timeperframe.numerator ? (c->maxfps + 1) / 2 : c->maxfps;
        memset(cap, 0, sizeof *cap);
        cap->capability = V4L2_CAP_TIMEPERFRAME;
        cap->timeperframe = (struct v4l2_fract){ c->fps == c->maxfps ? 1 : 2, c->maxfps };
        return 0; }
    case VIDIOC_ENUMINPUT: {
        struct v4l2_input *i = arg;
        if (i->index) return -EINVAL;
        memset(i, 0, sizeof *i);
        strcpy((char *)i->name, "Camera 1"); i->type = V4L2_INPUT_TYPE_CAMERA;
        return 0; }
    case VIDIOC_G_INPUT: *(int *)arg = 0; return 0;
    case VIDIOC_S_INPUT: return *(int *)arg ? -EINVAL : 0;
    case VIDIOC_REQBUFS: return request_buffers(c, arg);
    case VIDIOC_QUERYBUF: case VIDIOC_QBUF: {
        struct v4l2_buffer *b = arg;
        if (b->index >= (unsigned)c->nbuf || b->memory != V4L2_MEMORY_MMAP) return -EINVAL;
        if (req == VIDIOC_QBUF) {
            if (c->state[b->index] != FREE) return -EINVAL;
            c->state[b->index] = QUEUED;
            c->queue[c->nqueue++] = b->index;
        }
        *b = c->info[b->index];
        b->flags |= c->state[b->index] == QUEUED ? V4L2_BUF_FLAG_QUEUED : c->state[b->index] == DONE ? V4L2_BUF_FLAG_DONE : 0;
        return 0; }
    case VIDIOC_DQBUF: return dequeue(c, arg);
    case VIDIOC_STREAMON:
        if (!c->nbuf) return -EINVAL;
        if (!c->streaming) {
            c->streaming = 1; c->seq = 0;
            pthread_create(&c->thread, NULL, produce, c);
        }
        return 0;
    case VIDIOC_STREAMOFF: stop(c); return 0;
    case VIDIOC_QUERY_EXT_CTRL: {
        struct v4l2_query_ext_ctrl *q = arg;
        int i = q->id & V4L2_CTRL_FLAG_NEXT_COMPOUND ? -1 : control(q->id);
        if (i < 0) return -EINVAL;
        memset(q, 0, sizeof *q);
        q->id = controls[i].id; q->type = controls[i].type;
        strcpy(q->name, controls[i].name);
        q->minimum = controls[i].min; q->maximum = controls[i].max; q->default_value = controls[i].def;
        q->step = q->elems = 1; q->elem_size = 4;
        return 0; }
    case VIDIOC_G_CTRL: case VIDIOC_S_CTRL: {
        struct v4l2_control *v = arg;
        int i = control(v->id);
        if (i < 0) return -EINVAL;
        if (req == VIDIOC_G_CTRL) v->value = values[i];
        else if (v->value < controls[i].min || v->value > controls[i].max) return -ERANGE;
        else values[i] = v->value;
        return 0; }
    case VIDIOC_QUERYCTRL: case VIDIOC_G_EXT_CTRLS: case VIDIOC_S_EXT_CTRLS: case VIDIOC_SUBSCRIBE_EVENT: return -EINVAL;
    case VIDIOC_DQEVENT: return -ENOENT;
    default: return -ENOTTY;
    }
}

/* ---- interposed libc calls ---- */

static int open_cam(const char *path, int flags)
{
    struct cam *c = calloc(1, sizeof *c);
    struct stat st;
    strcpy(c->path, path);
    if (read_config(c, 1) || REAL(stat)(path, &st)) { free(c); errno = ENODEV; return -1; }
    c->inode = st.st_ino; c->mtime = st.st_mtim;
    c->memfd = -1; c->nonblock = flags & O_NONBLOCK;
    c->lockfd = REAL(open)(path, O_RDONLY | O_CLOEXEC);
    c->event = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&c->lock, NULL);
    set_format(c, &c->pix);
    int fd = REAL(dup)(c->event);
    if (fd < 0 || fd >= MAXFD) abort();
    cams[fd] = c;
    c->refs = 1;
    return fd;
}

#define OPEN(name, params, pathname, call)                                              \
    int name params {                                                                   \
        char real[PATH_MAX]; mode_t mode = 0;                                           \
        if (flags & (O_CREAT | __O_TMPFILE)) { va_list a; va_start(a, flags); mode = va_arg(a, mode_t); va_end(a); } \
        else if ((flags & O_ACCMODE) == O_RDWR && is_fake(pathname, real)) return open_cam(real, flags); \
        return REAL(name) call;                                                         \
    }
OPEN(open, (const char *path, int flags, ...), path, (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), path, (path, flags, mode))
OPEN(openat, (int dir, const char *path, int flags, ...), path, (dir, path, flags, mode))
OPEN(openat64, (int dir, const char *path, int flags, ...), path, (dir, path, flags, mode))

int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open(path, flags); }

int dup(int fd)                                         /* v4l2src's buffer pool works on a dup */
{
    struct cam *c = cam_of(fd);
    int copy = REAL(dup)(fd);
    if (c && copy >= 0 && copy < MAXFD) { cams[copy] = c; __atomic_add_fetch(&c->refs, 1, __ATOMIC_SEQ_CST); }
    return copy;
}

int close(int fd)
{
    struct cam *c = cam_of(fd);
    if (c) {
        cams[fd] = NULL;
        if (!__atomic_sub_fetch(&c->refs, 1, __ATOMIC_SEQ_CST)) {
            pthread_mutex_lock(&c->lock);
            stop(c);
            free_buffers(c);
            pthread_mutex_unlock(&c->lock);
            REAL(close)(c->lockfd);
            REAL(close)(c->event);
            free(c);
        }
    }
    return REAL(close)(fd);
}

int ioctl(int fd, unsigned long req, ...)
{
    va_list a; va_start(a, req); void *arg = va_arg(a, void *); va_end(a);
    struct cam *c = cam_of(fd);
    if (!c) return REAL(ioctl)(fd, req, arg);
    pthread_mutex_lock(&c->lock);
    int r = handle(c, req, arg);
    pthread_mutex_unlock(&c->lock);
    if (r < 0) { errno = -r; return -1; }
    return 0;
}

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
    struct cam *c = cam_of(fd);
    return REAL(mmap)(at, len, prot, flags, c ? c->memfd : fd, off);
}
void *mmap64(void *at, size_t len, int prot, int flags, int fd, off64_t off) { return mmap(at, len, prot, flags, fd, off); }

/* POLLERR at once for a camera that is gone or not streaming; the rest is the eventfd's own readiness. */
static int dead(struct pollfd *p) { struct cam *c = cam_of(p->fd); return c && (c->gone || !c->streaming); }
static int any_dead(struct pollfd *p, nfds_t n) { for (nfds_t i = 0; i < n; i++) if (dead(p + i)) return 1; return 0; }
static int mark_dead(struct pollfd *p, nfds_t n, int ready)
{
    for (nfds_t i = 0; ready >= 0 && i < n; i++)
        if (dead(p + i)) {
            if (!p[i].revents) ready++;
            p[i].revents = POLLERR | (cams[p[i].fd]->gone ? POLLHUP | (p[i].events & POLLPRI) : 0);
        }
    return ready;
}
int poll(struct pollfd *p, nfds_t n, int timeout)
{
    return mark_dead(p, n, REAL(poll)(p, n, any_dead(p, n) ? 0 : timeout));
}
int ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
    static const struct timespec zero;
    return mark_dead(p, n, REAL(ppoll)(p, n, any_dead(p, n) ? &zero : t, mask));
}

#define CHAR_DEVICE(st) ((st)->st_mode = S_IFCHR | 0660, (st)->st_rdev = makedev(81, 0))
#define STAT(name, type) int name(const char *path, struct type *st) \
    { int r = REAL(name)(path, st); if (!r && is_fake(path, NULL)) CHAR_DEVICE(st); return r; }
#define FSTAT(name, type) int name(int fd, struct type *st) \
    { int r = REAL(name)(fd, st); if (!r && cam_of(fd)) CHAR_DEVICE(st); return r; }
STAT(stat, stat) STAT(stat64, stat64) FSTAT(fstat, stat) FSTAT(fstat64, stat64)
int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict st)
{
    int r = REAL(statx)(dir, path, flags, mask, st);
    if (!r && (cam_of(dir) || (!(flags & AT_SYMLINK_NOFOLLOW) && is_fake(path, NULL)))) {
        st->stx_mode = S_IFCHR | 0660;
        st->stx_rdev_major = 81; st->stx_rdev_minor = 0;
    }
    return r;
}
