package inference

import (
	"bytes"
	"io"
	"strings"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// takesFile reports whether the model has one input, of bytes, so that a client may send a file and
// nothing else. The framings of platforms have their own media types.
func (q *Request) takesFile() bool {
	inputs := q.target.Info().Config.GetInput()
	return len(inputs) == 1 && inputs[0].GetDataType() == kserve.DataType_TYPE_STRING && q.codec.framing.BinaryType == ""
}

// isFile reports whether the body is a file, by its media type: image/* and audio/* always, and
// application/octet-stream unless the text begins with a JSON object, which clients of Triton send
// with that type, too.
func (q *Request) isFile(r *http1.Request) (bool, error) {
	media, _ := r.Header("Content-Type")
	switch {
	case hasPrefixFold(media, "image/"), hasPrefixFold(media, "audio/"):
		return true, nil
	case hasPrefixFold(media, octetStream):
		object, err := q.beginsAsObject()
		return !object && err == nil, err
	}
	return false, nil
}

const octetStream = "application/octet-stream"

func hasPrefixFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// maxBlank bounds the spaces before the brace of a JSON object, in bytes.
const maxBlank = 512

// beginsAsObject looks at the beginning of the body, which remains unread.
func (q *Request) beginsAsObject() (bool, error) {
	begin, left := make([]byte, maxBlank), q.body.Left
	n, err := q.body.ReadFull(begin)
	if err != nil {
		return false, err
	}
	begin = begin[:n]
	q.body = body.NewReader(io.MultiReader(bytes.NewReader(begin), q.body.Source()), left)
	text := bytes.TrimLeft(begin, " \t\r\n")
	return len(text) == 0 || text[0] == '{', nil
}
