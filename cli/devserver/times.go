package devserver

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/objectstore"
)

// What the file keeps at most.
const (
	mostRepositories = 50
	mostModels       = 2000
)

// Times are how long the models of one repository have taken to load. They are a help to guess and nothing more:
// a file that cannot be read or written, or is damaged, is no times.
type Times struct {
	file string // "": they are not kept
	key  string // of the repository
	all  map[string]*repositoryTimes
	mine *repositoryTimes
}

// repositoryTimes is what the file has of one repository.
type repositoryTimes struct {
	Used    time.Time          `json:"used"`
	Seconds map[string]float64 `json:"seconds"` // by model
}

// ReadTimes reads the times of the repository that lies in the given directories and stores. Folder is where the file lies,
// such as os.UserCacheDir()/nereid; "": they are not kept.
func ReadTimes(folder string, directories []string) *Times {
	var whole []string
	for _, d := range directories {
		if location, remote, _ := objectstore.Parse(d); remote {
			d = location.String() // the file has no secret of a URL
		} else if absolute, err := filepath.Abs(d); err == nil {
			d = absolute
		}
		whole = append(whole, d)
	}
	t := &Times{key: strings.Join(whole, ":")}
	if folder != "" {
		t.file = filepath.Join(folder, "load-times.json")
		t.all = readAll(t.file)
	}
	if t.mine = t.all[t.key]; t.mine == nil {
		t.mine = &repositoryTimes{}
	}
	if t.mine.Seconds == nil {
		t.mine.Seconds = make(map[string]float64)
	}
	return t
}

func readAll(file string) map[string]*repositoryTimes {
	all := make(map[string]*repositoryTimes)
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &all) != nil {
		return make(map[string]*repositoryTimes)
	}
	return all
}

// of returns how long a model took, 0 if that is not known.
func (t *Times) of(model string) time.Duration {
	return max(time.Duration(t.mine.Seconds[model]*float64(time.Second)), 0)
}

func (t *Times) note(model string, took time.Duration) {
	if _, known := t.mine.Seconds[model]; known || len(t.mine.Seconds) < mostModels {
		t.mine.Seconds[model] = took.Seconds()
	}
}

// write writes the file anew, with what other servers have written meanwhile, and without the repositories
// that have been served least recently.
func (t *Times) write() {
	if t.file == "" || len(t.mine.Seconds) == 0 {
		return
	}
	all := readAll(t.file)
	t.mine.Used = time.Now().UTC().Truncate(time.Second)
	all[t.key] = t.mine
	keys := make([]string, 0, len(all))
	for key, one := range all {
		if one == nil {
			delete(all, key)
			continue
		}
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(all[b].Used.Compare(all[a].Used), cmp.Compare(a, b)) })
	for _, key := range keys[min(len(keys), mostRepositories):] {
		delete(all, key)
	}
	text, err := json.Marshal(all)
	if err != nil || os.MkdirAll(filepath.Dir(t.file), 0o700) != nil {
		return
	}
	beside, err := os.CreateTemp(filepath.Dir(t.file), ".load-times-*")
	if err != nil {
		return
	}
	_, err = beside.Write(text)
	if closed := beside.Close(); err != nil || closed != nil || os.Rename(beside.Name(), t.file) != nil {
		_ = os.Remove(beside.Name())
	}
}
