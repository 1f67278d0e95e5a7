package form

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// mostFile bounds a download: a tensor of numbers, or an element of BYTES.
const mostFile = 1 << 20

// File is a download: its name, and a data URL of its content. Both are "" if the content was not
// kept completely.
type File struct{ Name, URL string }

const webp = "image/webp"

// dataURL returns bytes of a media type as a URL.
//
// bound: mostFile or mostPicture
func dataURL(kind string, data []byte) string {
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// media are the files that browsers show or play, by their first bytes. SVG is excluded, since it
// is markup.
var media = []struct{ kind, ending, prefix, inner string }{
	{"image/png", ".png", "\x89PNG\r\n\x1a\n", ""},
	{"image/jpeg", ".jpg", "\xff\xd8\xff", ""},
	{"image/gif", ".gif", "GIF87a", ""},
	{"image/gif", ".gif", "GIF89a", ""},
	{webp, ".webp", "RIFF", "WEBP"},
	{"audio/wav", ".wav", "RIFF", "WAVE"},
	{"audio/flac", ".flac", "fLaC", ""},
	{"audio/ogg", ".ogg", "OggS", ""},
	{"audio/mpeg", ".mp3", "ID3", ""},
}

// mediaType returns the media type of a raster image or a sound, and the extension of its file; ""
// for other data.
func mediaType(data []byte) (kind, ending string) {
	const inner = 8 // position of the format in a RIFF file
	for _, m := range media {
		if bytes.HasPrefix(data, []byte(m.prefix)) && (m.inner == "" || len(data) > inner+len(m.inner) && bytes.HasPrefix(data[inner:], []byte(m.inner))) { // bound: the prefixes of the table
			return m.kind, m.ending
		}
	}
	return "", ""
}

// tensorFile returns a tensor of numbers as a file for numpy.load, or as plain bytes if numpy has
// no such type.
//
// bound: mostFile
func tensorFile(t *infer.Tensor) File {
	descr := map[infer.DataType]string{
		infer.Bool: "|b1", infer.Uint8: "|u1", infer.Uint16: "<u2", infer.Uint32: "<u4", infer.Uint64: "<u8",
		infer.Int8: "|i1", infer.Int16: "<i2", infer.Int32: "<i4", infer.Int64: "<i8", infer.FP16: "<f2", infer.FP32: "<f4", infer.FP64: "<f8",
	}[t.DataType]
	if descr == "" {
		return File{t.Name + ".bin", dataURL("application/octet-stream", t.Data)}
	}
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	shape := strings.Join(dims, ", ")
	if len(dims) == 1 {
		shape += "," // a tuple of one
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	// The magic, the version and the length of the header precede it. All of it is a multiple of 64
	// bytes.
	const before, align = 10, 64
	header += strings.Repeat(" ", align-1-(before+len(header))%align) + "\n"
	file := make([]byte, 0, before+len(header)+len(t.Data))
	file = append(file, "\x93NUMPY\x01\x00"...)
	file = append(file, byte(len(header)), byte(len(header)>>8))
	file = append(append(file, header...), t.Data...)
	return File{t.Name + ".npy", dataURL("application/octet-stream", file)}
}
