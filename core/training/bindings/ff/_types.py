# Classes of the program that a checkpoint may hold: by which name, and how one of their values is
# taken apart and made again. A load finds classes here only, so a checkpoint cannot choose code.
import collections
import dataclasses
import enum
import functools
import operator
import sys

from ff._library import Error

_NATIVE = {type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set,
           frozenset, range, slice, collections.OrderedDict, collections.Counter,
           collections.defaultdict, collections.deque}
_NATIVE_OF = {"torch": ("Tensor", "nn.Parameter", "Size", "dtype", "device"),
              "numpy": ("ndarray", "matrix", "ma.MaskedArray")}


class RegisteredType:
    def __init__(self, cls, name, flatten, unflatten):
        self.cls, self.name, self.flatten, self.unflatten = cls, name, flatten, unflatten


_by_class, _by_name = {}, {}


def of_class(cls):
    """The RegisteredType of exactly this class, or None."""
    return _by_class.get(cls)


def of_name(name):
    """The RegisteredType of this name, or None."""
    return _by_name.get(name)


def derives(cls):
    """Whether register_type() needs no functions for it."""
    return _derived(cls) is not None


def register_type(cls, flatten=None, unflatten=None, name=None):
    """Lets checkpoints hold values of the class `cls`, and gives `cls`, so it can be a decorator.

    flatten(value) gives something that a checkpoint can hold (see save_async()), from which
    unflatten(content) makes an equal value:

        ff.register_type(pathlib.PosixPath, str, pathlib.PosixPath)

    An Enum, a dataclass and a namedtuple need no functions. An Enum is stored by the names of its
    members. The others are stored field by field; a load runs neither __init__ nor __post_init__,
    gives fields that are new since then their defaults, and refuses those that the class no longer
    has. Subclasses of `cls` are not registered with it.

    The checkpoint records `name` (None: "MODULE.QUALNAME"), and load() makes values of registered
    classes only. So a program that loads registers the same classes under the same names; a class
    of a script, whose module is __main__ there, wants a name of its own."""
    if not isinstance(cls, type):
        raise Error(2, f"register_type: {cls!r} is no class")
    if _is_native(cls):
        raise Error(2, f"register_type: checkpoints hold a {cls.__qualname__} without it")
    if (flatten is None) != (unflatten is None):
        raise Error(2, f"register_type({cls.__qualname__}): give both flatten and unflatten")
    name = f"{cls.__module__}.{cls.__qualname__}" if name is None else str(name)
    other = _by_name.get(name)
    if other is not None and other.cls is not cls and not _is_again(other.cls, cls):
        raise Error(2, f"register_type({cls.__qualname__}): {other.cls!r} has the name '{name}' "
                       "already: give another with name=")
    if flatten is None:
        functions = _derived(cls)
        if functions is None:
            raise Error(2, f"register_type({cls.__qualname__}): it is no Enum, namedtuple or plain "
                           "dataclass: give flatten and unflatten")
        flatten, unflatten = functions
    for old in (other, _by_class.get(cls)):
        if old is not None:
            _by_class.pop(old.cls, None)
            _by_name.pop(old.name, None)
    _by_class[cls] = _by_name[name] = RegisteredType(cls, name, flatten, unflatten)
    return cls


def _is_native(cls):
    if cls in _NATIVE:
        return True
    for module, names in _NATIVE_OF.items():
        if module in sys.modules and sys.modules[module] is not None:
            if any(operator.attrgetter(name)(sys.modules[module]) is cls for name in names):
                return True
    return False


def _is_again(old, new):
    """Whether a module or a cell of a notebook has defined the same class once more."""
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)


def _derived(cls):
    """(flatten, unflatten) of a class that says itself what it is made of, else None."""
    if issubclass(cls, enum.Enum):
        return _member_names, functools.partial(_member, cls)
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return (functools.partial(_fields, cls._fields), functools.partial(_named_tuple, cls))
    if dataclasses.is_dataclass(cls) and cls.__new__ is object.__new__:
        names = tuple(field.name for field in dataclasses.fields(cls))
        return functools.partial(_fields, names), functools.partial(_dataclass, cls)
    return None


def _member_names(value):
    members = type(value).__members__
    if members.get(value.name) is value:
        return [value.name]
    names = [name for name, one in members.items()
             if one.value & value.value == one.value and one.value > 0 and
             one.value & (one.value - 1) == 0]
    if _member(type(value), names) != value:
        raise Error(2, f"{value!r} is no combination of members")
    return names


def _member(cls, names):
    gone = [name for name in names if name not in cls.__members__]
    if gone:
        raise Error(1, f"{cls.__qualname__} has no member '{gone[0]}' any more")
    members = [cls.__members__[name] for name in names]
    return functools.reduce(operator.or_, members) if members else cls(0)


def _fields(names, value):
    others = getattr(value, "__dict__", {}).keys() - set(names)
    if others:
        raise Error(2, f"a {type(value).__qualname__} has attributes that are no fields of its "
                       f"class: {', '.join(sorted(others))}")
    return {name: getattr(value, name) for name in names}


def _complete(cls, content, defaults):
    """The value of each field of the class: that of the checkpoint, else its default."""
    gone = content.keys() - defaults.keys()
    lacking = [name for name, default in defaults.items()
               if name not in content and default is None]
    if gone or lacking:
        what = f"has no field '{min(gone)}' any more" if gone else \
            f"has a field '{lacking[0]}' that the checkpoint lacks"
        raise Error(1, f"{cls.__qualname__} {what}: register it with a flatten and an unflatten "
                       "that reads both")
    return {name: content[name] if name in content else default()
            for name, default in defaults.items()}


def _named_tuple(cls, content):
    known = getattr(cls, "_field_defaults", {})
    defaults = {name: (lambda name=name: known[name]) if name in known else None
                for name in cls._fields}
    return tuple.__new__(cls, _complete(cls, content, defaults).values())


def _dataclass(cls, content):
    defaults = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = lambda field=field: field.default
        else:
            made = field.default_factory
            defaults[field.name] = None if made is dataclasses.MISSING else made
    value = object.__new__(cls)
    for name, one in _complete(cls, content, defaults).items():
        object.__setattr__(value, name, one)
    return value
