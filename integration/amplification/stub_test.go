package amplification

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
)

const (
	// hostileBackend is a plugin whose program is this test binary.
	hostileBackend = "hostile"
	// caseFile, in the model's directory, names the frames to send. sendingFile and sentFile, beside
	// it, say that the first is about to be sent, and that all have been.
	caseFile    = "case"
	sendingFile = "sending"
	sentFile    = "sent"
	// answerEnv names the file of a case whose frames the plugin sends in place of its own frame of
	// that kind: HELLO, COMPLETED, INITIALIZED and FINALIZED.
	answerEnv = "AMPLIFICATION_ANSWER"

	manyBytes = 12 << 20 // per case
	manyMaps  = 3 << 20  // per case, in frames of msgpack
	oneFrame  = 6 << 20

	// Sizes of the large values of msgpack bodies: of most kinds, of HELLO, and of calls that load a
	// model.
	mostMap   = 1<<20 - 4<<10
	mostHello = 64<<10 - 4<<10
	mostLoad  = 8 << 20
)

// ofItsType is the form of a field that has the value of its type with the highest cost for its
// size.
const ofItsType = "the worst of its type"

// frameCase is one form of one kind of frame.
type frameCase struct {
	Frame string // file name of a golden frame of package ipc
	Form  string
	Model string
	// Endless makes the plugin send the frames until it is killed.
	Endless bool
}

var le = binary.LittleEndian

// goldenFrames returns the golden frames of the kinds that stubs send, by file name.
func goldenFrames(folder string) (map[string][]byte, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.bin"))
	frames := map[string][]byte{}
	for _, file := range files {
		frame, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".bin")
		if kind := kindOf(frame); (kind >= ipc.Hello || name == "name_up") && le.Uint16(frame[6:]) == 0 {
			frames[name] = frame
		}
	}
	return frames, err
}

func kindOf(frame []byte) ipc.Kind { return ipc.Kind(le.Uint16(frame[4:])) }

// formsOfFrame returns the forms of a golden frame: unchanged, with each value in each field of its
// map, or with each length and count of its fixed parts changed.
func formsOfFrame(frame []byte) (forms []string) {
	forms = append(forms, "as it is", "zeros")
	if fields, ok := mapOf(frame); ok {
		for _, key := range append(slices.Sorted(maps.Keys(fields)), "another") {
			forms = append(forms, key+": "+ofItsType)
			for _, v := range mapValues {
				forms = append(forms, key+": "+v.name)
			}
			if key == "config" {
				for _, config := range configForms {
					forms = append(forms, key+": "+config.kind)
				}
			}
		}
		return append(forms, "many keys", "long key")
	}
	for _, head := range headsOf(kindOf(frame)) {
		t := reflect.TypeOf(head)
		for i := range t.NumField() {
			if k := t.Field(i).Type.Kind(); k == reflect.Uint32 || k == reflect.Uint16 {
				forms = append(forms, t.Name()+"."+t.Field(i).Name)
			}
		}
	}
	return forms
}

// commonCase returns the name of a case that is identical for all golden frames of a kind, or "".
func commonCase(frame []byte, form string) string {
	_, fields := mapOf(frame)
	if form == "as it is" || fields && form != "zeros" && form != "many keys" {
		return ""
	}
	return fmt.Sprint(kindOf(frame), form)
}

// positionOf returns the position of a form in the frames of a kind, or the form of one golden
// frame.
func positionOf(frame []byte, name, form string) string {
	if field, _, ok := strings.Cut(form, ": "); ok {
		return fmt.Sprint(kindOf(frame), " ", field)
	}
	return name + " " + form
}

// needed reports whether a form belongs to each sample, so that the sample includes every field.
func needed(form string) bool {
	_, value, ofField := strings.Cut(form, ": ")
	return !ofField || value == ofItsType
}

func mapOf(frame []byte) (fields map[string]any, ok bool) {
	err := msgpack.Unmarshal(frame[ipc.HeaderSize:], &fields)
	return fields, err == nil && fields != nil
}

// mapValues are the values with the highest cost for their size, of all types.
var mapValues = []struct {
	name string
	make func(size int) any
}{
	{"long text", func(size int) any { return strings.Repeat("m", size) }},
	{"empty texts", func(size int) any { return make([]string, size) }},
	{"empty maps", func(size int) any { return make([]struct{}, size) }},
	{"nested", func(size int) any {
		var v any
		for range 12 {
			v = []any{v}
		}
		return slices.Repeat([]any{v}, size/16)
	}},
	{"short keys", func(size int) any { return manyKeys(size/8, 0) }},
}

// manyKeys returns a map with n keys of at most seven bytes when encoded.
func manyKeys(n int, value any) map[string]any {
	m := make(map[string]any, n)
	for i := range n {
		m[fmt.Sprintf("%x", i)] = value
	}
	return m
}

// worst returns the value with the highest cost for its size among those that decode into the type
// of a golden value.
func worst(golden any, size int) any {
	const files = 4000 // more are not decoded
	switch golden := golden.(type) {
	case string:
		return strings.Repeat("m", size)
	case []any:
		element := empty(golden[0])
		one, _ := msgpack.Marshal(element)
		return slices.Repeat([]any{element}, size/len(one))
	case map[string]any:
		for _, value := range golden {
			return manyKeys(files, empty(value))
		}
	case nil: // an unknown field
		return valueOf("nested", nil, size)
	}
	return golden
}

// empty returns the shortest value of a type.
func empty(golden any) any {
	switch golden.(type) {
	case string:
		return ""
	case []byte:
		return []byte{}
	case []any:
		return []any{}
	}
	return 0
}

// headsOf returns the fixed parts of a kind of frame.
func headsOf(kind ipc.Kind) []any {
	switch kind {
	case ipc.Executed:
		return []any{ipc.ExecutedHead{}, ipc.ResponseHead{}}
	case ipc.Response:
		return []any{ipc.ResponseHead{}}
	case ipc.Infer:
		return []any{ipc.InferHead{}, ipc.RequestHead{}}
	}
	return nil
}

// hostile is a process of the plugin.
type hostile struct {
	peer      *peer.Peer
	box       *peer.Box
	directory string // of the model's version
	decoupled bool
	next      uint64
	answer    givenCase // of answerEnv
	made      string    // the frame and the form of body
	body      []byte    // the latest map
}

// givenCase is a case with the directory of the golden frames.
type givenCase struct {
	frameCase
	Golden string
}

func readCase(path string) (c givenCase, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	return c, err
}

// frame returns the golden frame of the case.
func (c *givenCase) frame() ([]byte, error) {
	return os.ReadFile(filepath.Join(c.Golden, c.Frame+".bin"))
}

// runHostile is the main function of the plugin's process.
func runHostile() error {
	var fds []int
	for field := range strings.SplitSeq(os.Getenv(ipc.PluginFilesEnv), ",") {
		fd, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		unix.CloseOnExec(fd)
		fds = append(fds, fd)
	}
	file := func(i int) *os.File { return os.NewFile(uintptr(fds[i]), "inherited") }
	fmt.Println(ipc.PluginLine(ipc.PluginVersion))
	for i, fd := range fds[len(fds)-2:] {
		if err := unix.Dup3(fd, 1+i, 0); err != nil {
			return err
		}
	}
	h := &hostile{box: peer.NewBox()}
	var err error
	h.peer, err = peer.Attach(peer.Files{Down: file(0), Up: file(1), Requests: file(2), DownBell: file(3), UpBell: file(4)}, func(peer.Message) *peer.Box { return h.box })
	if err != nil {
		return err
	}
	if path := os.Getenv(answerEnv); path != "" {
		if h.answer, err = readCase(path); err != nil {
			return err
		}
		// An honest process takes no blocks before INITIALIZE. This one does.
		h.peer.OpenArena(peer.Sizes{Default: manyBytes, Growth: manyBytes, Max: 8 * manyBytes})
	}
	h.say(ipc.Hello, uint64(os.Getpid()), map[string]any{"python": "", "numpy": "", "executable": "", "prefix": ""})
	for {
		m, err := h.peer.Receive(h.box, nil, 0)
		if err != nil {
			return err
		}
		switch m.Kind {
		case ipc.AutoComplete, ipc.Initialize:
			if err := h.open(m); err != nil {
				return err
			}
		case ipc.Execute:
			if err := h.execute(m); err != nil {
				return err
			}
		case ipc.Finalize:
			h.say(ipc.Finalized, 0, map[string]any{"error": ""})
			return nil
		}
	}
}

// say sends a msgpack body, or the frames of the case of answerEnv. The next Receive returns any
// error.
func (h *hostile) say(kind ipc.Kind, id uint64, fields map[string]any) {
	if h.answer.Frame != "" {
		if frame, err := h.answer.frame(); err == nil && kindOf(frame) == kind {
			_, body := h.form(frame, h.answer.Form, 0, 0)
			for sent := 0; sent < manyMaps && h.peer.Send(kind, id, body) == nil; {
				if sent += ipc.HeaderSize + len(body); kind == ipc.Completed && h.answer.Form != "as it is" {
					break // the server reads a second one as a fault
				}
			}
			return
		}
	}
	body, err := msgpack.Marshal(fields)
	if err == nil {
		err = h.peer.Send(kind, id, body)
	}
	_ = err
}

// open handles AUTO_COMPLETE and INITIALIZE.
func (h *hostile) open(m peer.Message) error {
	var told struct {
		ipc.PluginModel
		Decoupled bool  `msgpack:"decoupled"`
		Default   int64 `msgpack:"default_bytes"`
		Growth    int64 `msgpack:"growth_bytes"`
		Max       int64 `msgpack:"max_bytes"`
	}
	if err := msgpack.Unmarshal(m.Body, &told); err != nil {
		return err
	}
	h.directory, h.decoupled = filepath.Join(told.Directory, strconv.FormatInt(told.Version, 10)), told.Decoupled
	if m.Kind == ipc.AutoComplete {
		h.say(ipc.Completed, 0, map[string]any{"error": "", "config": told.Config})
		return nil
	}
	if h.answer.Frame == "" {
		h.peer.OpenArena(peer.Sizes{Default: told.Default, Growth: told.Growth, Max: told.Max})
	}
	h.say(ipc.Initialized, 0, map[string]any{"error": "", "is_ready": false})
	return nil
}

// execute sends the frames of the case and responds to the batch.
func (h *hostile) execute(m peer.Message) error {
	c, err := readCase(filepath.Join(h.directory, caseFile))
	if err != nil {
		return err
	}
	number, requests := m.ID, int(le.Uint32(m.Body))
	answered := false
	if c.Frame != "" {
		frame, err := c.frame()
		if err != nil {
			return err
		}
		kind := kindOf(frame)
		answered = kind == ipc.Executed && !h.decoupled
		most := manyBytes
		if _, ok := mapOf(frame); ok {
			most = manyMaps
		}
		for sent, count := 0, 0; c.Endless || sent < most && count < 20_000; count++ {
			id, body := h.form(frame, c.Form, number, requests)
			if count == 0 {
				if err := os.WriteFile(filepath.Join(h.directory, sendingFile), nil, 0o600); err != nil {
					return err
				}
			}
			if err := h.peer.Send(kind, id, body); err != nil {
				return err
			}
			if sent += len(body); kind == ipc.Executed {
				break // one per batch
			}
			if c.Endless && count == 0 {
				if err := os.WriteFile(filepath.Join(h.directory, sentFile), nil, 0o600); err != nil {
					return err
				}
			}
		}
	}
	if err := os.WriteFile(filepath.Join(h.directory, sentFile), nil, 0o600); err != nil {
		return err
	}
	if answered {
		return nil
	}
	return h.peer.Send(ipc.Executed, number, h.executed(number, requests, ipc.ExecutedHead{}, nil, ipc.ResponseHead{}, nil))
}

// form returns the id and the body of a frame.
func (h *hostile) form(frame []byte, form string, number uint64, requests int) (id uint64, body []byte) {
	h.next++
	id, body = le.Uint64(frame[16:])+h.next, frame[ipc.HeaderSize:]
	switch kindOf(frame) {
	case ipc.Executed:
		id = number
	case ipc.Response:
		id = number << 32
	}
	if form == "as it is" {
		return id, body
	}
	if form == "zeros" {
		return id, make([]byte, oneFrame)
	}
	if fields, ok := mapOf(frame); ok {
		if made := string(frame) + form; h.made != made {
			h.made, h.body = made, mapBody(kindOf(frame), fields, form)
		}
		return id, h.body
	}
	return id, h.structured(kindOf(frame), form, number, requests)
}

// mapBody returns the form of a body that is a map with these fields.
func mapBody(kind ipc.Kind, fields map[string]any, form string) []byte {
	size := mostOf(kind, fields)
	if fields["operation"] == "load" {
		fields["model"] = spareModel
	}
	switch key, value, _ := strings.Cut(form, ": "); form {
	case "many keys":
		fields = manyKeys(size/8, 0)
	case "long key":
		fields[strings.Repeat("m", size)] = 0
	default:
		fields[key] = valueOf(value, fields[key], size)
	}
	body, _ := msgpack.Marshal(fields)
	return body
}

// mostOf returns the size of the large value in a map.
func mostOf(kind ipc.Kind, fields map[string]any) int {
	switch {
	case kind == ipc.Hello:
		return mostHello
	case fields["operation"] == "load":
		return mostLoad
	}
	return mostMap
}

// valueOf returns the value of a form of a field with this golden value.
func valueOf(name string, golden any, size int) any {
	if name == ofItsType {
		return worst(golden, size)
	}
	for _, v := range mapValues {
		if v.name == name {
			return v.make(size)
		}
	}
	for _, config := range configForms {
		if config.kind == name {
			return string(config.make(min(size, mostMap)))
		}
	}
	return nil
}

// structured returns a body whose fixed part has one large length or count, followed by that many
// bytes or elements.
func (h *hostile) structured(kind ipc.Kind, form string, number uint64, requests int) []byte {
	typeName, fieldName, _ := strings.Cut(form, ".")
	set := func(head any) (more []byte) {
		v := reflect.ValueOf(head).Elem()
		if v.Type().Name() != typeName {
			return nil
		}
		f := v.FieldByName(fieldName)
		switch {
		case f.Kind() == reflect.Uint16: // descriptors, or indices of names
			const count = 20_000
			f.SetUint(count)
			d := ipc.Descriptor{Type: uint8(infer.Uint8), Region: ipc.InFrame, Shape: make([]int64, ipc.MaxRank)}
			one := make([]byte, d.Size())
			d.Put(one)
			return slices.Repeat(one, count)
		case fieldName == "Parameters":
			more = fmt.Appendf(nil, `{"k":%q}`, letters(oneFrame))
		default:
			more = letters(oneFrame)
		}
		f.SetUint(uint64(len(more)))
		return more
	}
	switch kind {
	case ipc.Infer:
		begin, head := ipc.InferHead{Batch: number, Flags: ipc.InferStream, Demand: 16, Model: uint32(len(goodModel)), Memory: ipc.PreferCPU}, ipc.RequestHead{Outputs: ipc.AllOutputs}
		name := []byte(goodModel)
		if more := set(&begin); more != nil {
			name = more
		}
		more := set(&head)
		body := make([]byte, ipc.InferSize, ipc.InferSize+len(name)+len(more)+ipc.RequestSize+64)
		begin.Put(body)
		body = append(body, name...)
		body = append(body, make([]byte, ipc.Align8(len(body))-len(body)+ipc.RequestSize)...)
		head.Put(body[len(body)-ipc.RequestSize:])
		return append(body, more...)
	case ipc.Response:
		head := ipc.ResponseHead{Handle: number << 32, Flags: ipc.FlagPresent}
		more := set(&head)
		if head.Error > 0 {
			head.Flags |= ipc.FlagError
		}
		return response(make([]byte, 8), head, more)
	default:
		first, head := ipc.ExecutedHead{}, ipc.ResponseHead{}
		text := set(&first)
		more := set(&head)
		return h.executed(number, requests, first, text, head, more)
	}
}

// executed returns a body that responds to a batch with the same response for each request.
func (h *hostile) executed(number uint64, requests int, first ipc.ExecutedHead, text []byte, head ipc.ResponseHead, more []byte) []byte {
	if h.decoupled {
		requests = 0
	}
	first.Responses += uint32(requests)
	if first.Text > 0 {
		first.Status = ipc.StatusFailed
	}
	body := append(make([]byte, ipc.ExecutedSize, ipc.ExecutedSize+len(text)+requests*(len(more)+ipc.ResponseSize+16)), text...)
	first.Put(body)
	body = append(body, make([]byte, ipc.Align8(len(body))-len(body))...)
	for i := range requests {
		head.Handle, head.Flags = number<<32|uint64(i), ipc.FlagPresent|ipc.FlagFinal
		if head.Error > 0 {
			head.Flags |= ipc.FlagError
		}
		body = response(body, head, more)
	}
	return body
}

func response(body []byte, head ipc.ResponseHead, more []byte) []byte {
	at := len(body)
	body = append(body, make([]byte, ipc.ResponseSize)...)
	head.Put(body[at:])
	body = append(body, more...)
	return append(body, make([]byte, ipc.Align8(len(body))-len(body))...)
}
