package catalog

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
)

// Clients that may load models choose names and versions, and their records stay after a failed
// load or an unload. Beyond some memory the catalog forgets the oldest.
const (
	// maxUnserved bounds the memory of one model's versions that failed to load or were unloaded:
	// some 1,000.
	maxUnserved = 256 << 10
	// maxLeft bounds the memory of models that serve nothing and have no directory in any
	// repository: some 3,000.
	maxLeft = 4 << 20
	// Memory for the record of a model and of a version, also in snapshots, without their texts.
	modelBytes   = 1 << 10
	versionBytes = 256
)

// size estimates the memory of a version that is not served.
func (v *entry) size() int {
	n := versionBytes + len(v.reason.told)
	if v.reason.detail != v.reason.told {
		n += len(v.reason.detail)
	}
	return n
}

// sizeLocked estimates the memory of a model that serves nothing.
func (m *model) sizeLocked() int {
	n := modelBytes + len(m.id.Name) + len(m.failure)
	if m.invalid != nil {
		n += len(infer.AsError(m.invalid).Message) + len(infer.AsError(m.invalid).Detail)
	}
	for _, v := range m.versions {
		n += v.size()
	}
	return n
}

// trimLocked forgets the lowest versions that are not served if all together exceed maxUnserved.
func (m *model) trimLocked() {
	size := 0
	for _, v := range m.versions {
		if v.state == Unavailable {
			size += v.size()
		}
	}
	if size <= maxUnserved {
		return
	}
	for _, number := range slices.Sorted(maps.Keys(m.versions)) { // bound: the versions of the model
		if v := m.versions[number]; v.state == Unavailable {
			m.remove(number)
			if size -= v.size(); size <= maxUnserved*3/4 { // some room, so that not each call sorts
				return
			}
		}
	}
}

// leftLocked reports whether nothing but the record is left of a model: it serves nothing, and is
// wanted at most as an ensemble from a request that waits for other models.
func (m *model) leftLocked() bool {
	if m.served != nil || m.wanted != nil && (m.wanted.Upload == nil || m.invalid == nil) {
		return false
	}
	for _, v := range m.versions {
		if v.state != Unavailable {
			return false
		}
	}
	return true
}

// Surplus lists the oldest models of which only the record is left, if all together exceed maxLeft.
// Some may have a directory; the caller finds out for Discard.
func (k *Catalog) Surplus() []repository.Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	var left []*model // bound: the models
	size := 0
	for _, m := range k.models {
		if !m.backed && m.leftLocked() {
			left = append(left, m)
			size += m.sizeLocked()
		}
	}
	if size <= maxLeft {
		return nil
	}
	slices.SortFunc(left, func(a, b *model) int { return cmp.Compare(a.age, b.age) })
	var oldest []repository.Identity // bound: the models
	for _, m := range left {
		oldest = append(oldest, m.id)
		if size -= m.sizeLocked(); size <= maxLeft*3/4 { // some room, so that not each change publishes
			break
		}
	}
	return oldest
}

// Discard forgets those of the models of which only the record is left. The models in there have a
// directory: they stay, and Surplus omits them until a change of the model or Forget. The caller's
// operation has locked all. It drops the returned sources.
func (k *Catalog) Discard(ids []repository.Identity, there repository.Set) (replaced []*Source) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		m := k.models[id]
		switch {
		case m == nil || !m.leftLocked():
		case there[id]:
			m.backed = true
		default:
			replaced = append(replaced, m.want(nil)) // bound: the models
			delete(k.models, id)
		}
	}
	k.publishLocked()
	return replaced
}

// idleLocked reports whether a model is unloaded or was never loaded, and nothing else is known of
// it. A failed load counts as known, because it keeps the server from being ready.
func (m *model) idleLocked() bool {
	if m.wanted != nil || m.served != nil || m.invalid != nil || m.attempted && len(m.versions) == 0 {
		return false
	}
	for _, v := range m.versions {
		if v.state != Unavailable || v.reason != unloaded {
			return false
		}
	}
	return true
}

// Idle lists the models that Forget would remove.
func (k *Catalog) Idle() []repository.Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	var idle []repository.Identity // bound: the models
	for id, m := range k.models {
		if m.idleLocked() {
			idle = append(idle, id)
		}
	}
	return idle
}

// Forget removes those of the models that are unloaded or were never loaded. The caller's operation
// has locked them, so that no other operation is between two steps with any of them. It is called
// when directories may be gone, so Surplus does not rely on them.
func (k *Catalog) Forget(ids []repository.Identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		if m := k.models[id]; m != nil && m.idleLocked() {
			delete(k.models, id)
		}
	}
	for _, m := range k.models {
		m.backed = false
	}
	k.publishLocked()
}
