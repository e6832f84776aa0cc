// An intrusive doubly linked list: the links are members of the elements. Adding never allocates,
// an element unlinks itself in its destructor, and the list owns nothing. Not thread-safe.
//
// An element class T derives from ListLink<T>; an element is in at most one such list at a time.
#pragma once

#include "platform/base/check.h"

namespace ff {

template <class T>
class IntrusiveList;

template <class T>
class ListLink {
 public:
  ListLink() = default;
  ListLink(const ListLink&) = delete;
  ListLink& operator=(const ListLink&) = delete;
  ~ListLink() { unlink(); }

  bool linked() const { return next_ != nullptr; }
  void unlink() {
    if (next_ == nullptr) return;
    previous_->next_ = next_;
    next_->previous_ = previous_;
    next_ = previous_ = nullptr;
  }

 private:
  friend class IntrusiveList<T>;
  ListLink* previous_ = nullptr;
  ListLink* next_ = nullptr;
};

template <class T>
class IntrusiveList {
 public:
  IntrusiveList() { head_.next_ = head_.previous_ = &head_; }
  ~IntrusiveList() { clear(); }

  bool empty() const { return head_.next_ == &head_; }
  T& front() {
    FF_CHECK(!empty());
    return static_cast<T&>(*head_.next_);
  }
  void push_back(T& element) {
    ListLink<T>& link = element;
    FF_CHECK(!link.linked());
    link.previous_ = head_.previous_;
    link.next_ = &head_;
    head_.previous_->next_ = &link;
    head_.previous_ = &link;
  }
  T& pop_front() {
    T& element = front();
    static_cast<ListLink<T>&>(element).unlink();
    return element;
  }
  void clear() {
    while (!empty()) pop_front();
  }

 private:
  ListLink<T> head_;
};

}  // namespace ff
