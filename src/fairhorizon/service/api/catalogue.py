"""Items and users, as Gorse has them."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, Field

from fairhorizon.service.api.auth import Administering, GuardedRoute, Reading, Serving
from fairhorizon.service.api.bodies import (
    MOST_CATEGORIES,
    Affected,
    Body,
    Id,
    InCategories,
    Json,
    Moment,
    Text,
    moment,
    seconds,
    storable,
)
from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.settings import ID_LENGTH, MOST_ROWS
from fairhorizon.service.store.catalogue import (
    Item,
    User,
    find_item,
    find_user,
    page_of_items,
    page_of_users,
    put_items,
    put_users,
    remove_item,
    remove_user,
    update_item,
    update_user,
)

router = APIRouter(route_class=GuardedRoute)


class ItemBody(Body):
    """An item, as Gorse has it. Labels: an object, whose keys limits may be about, or a list."""

    ItemId: Id
    IsHidden: bool = False
    Labels: Json = None
    Categories: InCategories = Field([])
    Timestamp: Moment = None
    Comment: Text = ""

    def item(self) -> Item:
        time = 0.0 if self.Timestamp is None else seconds(self.Timestamp)
        return Item(
            self.ItemId, self.IsHidden, tuple(self.Categories), self.Labels, time, self.Comment
        )

    @classmethod
    def from_item(cls, item: Item) -> "ItemBody":
        # Not validated: items of files may exceed the bounds of calls.
        return cls.model_construct(
            ItemId=item.id,
            IsHidden=item.hidden,
            Labels=item.labels,
            Categories=list(item.categories),
            Timestamp=moment(item.time),
            Comment=item.comment,
        )


class ItemChange(Body):
    """What of an item is changed; what is left out stays."""

    IsHidden: bool | None = None
    Labels: Json = None
    Categories: InCategories | None = None
    Timestamp: Moment = None
    Comment: Text | None = None

    def columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {
            "hidden": self.IsHidden,
            "labels": self.Labels,
            "categories": self.Categories,
            "time": None if self.Timestamp is None else seconds(self.Timestamp),
            "comment": self.Comment,
        }
        return {name: value for name, value in columns.items() if value is not None}


class UserBody(Body):
    """A user, as Gorse has it. Subscribe is accepted and not kept."""

    UserId: Id
    Labels: Json = None
    Comment: Text = ""
    Subscribe: Json = Field(None, exclude=True)

    def user(self) -> User:
        return User(self.UserId, self.Labels, self.Comment)

    @classmethod
    def from_user(cls, user: User) -> "UserBody":
        return cls.model_construct(UserId=user.id, Labels=user.labels, Comment=user.comment)


class UserChange(Body):
    """What of a user is changed; what is left out stays. Subscribe is accepted and not kept."""

    Labels: Json = None
    Comment: Text | None = None
    Subscribe: Json = Field(None, exclude=True)

    def columns(self) -> dict[str, Any]:
        columns = {"labels": self.Labels, "comment": self.Comment}
        return {name: value for name, value in columns.items() if value is not None}


ItemId = Annotated[Id, Path()]
UserId = Annotated[Id, Path()]
PageLength = Annotated[int, Query(ge=1, le=1000)]
Cursor = Annotated[
    str, Query(max_length=ID_LENGTH, description="Of the page before."), AfterValidator(storable)
]
Search = Annotated[str | None, Query(description="Of Gorse; there is no search.")]
Items = Annotated[list[ItemBody], Field(max_length=MOST_ROWS)]
Users = Annotated[list[UserBody], Field(max_length=MOST_ROWS)]


class ItemPage(BaseModel):
    """Some items; an empty cursor is that of the last page."""

    Cursor: str
    Items: list[ItemBody]


class UserPage(BaseModel):
    """Some users; an empty cursor is that of the last page."""

    Cursor: str
    Users: list[UserBody]


@router.post("/api/item", dependencies=[Administering], summary="Insert or replace an item")
def insert_item(service: Serving, body: ItemBody) -> Affected:
    return insert_items(service, [body])


@router.post("/api/items", dependencies=[Administering], summary="Insert or replace items")
def insert_items(service: Serving, body: Items) -> Affected:
    with service.database.writing() as connection:
        rows = put_items(service.database, connection, [one.item() for one in body])
    return Affected(RowAffected=rows)


@router.get("/api/items", dependencies=[Reading], summary="Items, page by page")
def get_items(
    service: Serving, cursor: Cursor = "", n: PageLength = 100, q: Search = None
) -> ItemPage:
    if q is not None:
        raise ApiProblem(422, f"q = {q}: items are not searched here", "leave it out, and page")
    with service.database.reading() as connection:
        found = page_of_items(connection, cursor, n)
    return ItemPage(Cursor=_cursor(found, n), Items=[ItemBody.from_item(one) for one in found])


@router.put(
    "/api/item/{item:id}/category/{category:id}",
    dependencies=[Administering],
    summary="Add a category to an item",
)
def add_category(service: Serving, item: ItemId, category: Annotated[Id, Path()]) -> Affected:
    return _categories(service, item, category, there=True)


@router.delete(
    "/api/item/{item:id}/category/{category:id}",
    dependencies=[Administering],
    summary="Take a category from an item",
)
def remove_category(service: Serving, item: ItemId, category: Annotated[Id, Path()]) -> Affected:
    return _categories(service, item, category, there=False)


@router.get("/api/item/{item:id}", dependencies=[Reading], summary="An item")
def get_item(service: Serving, item: ItemId) -> ItemBody:
    with service.database.reading() as connection:
        found = find_item(connection, item)
    if found is None:
        raise _missing("item", item)
    return ItemBody.from_item(found)


@router.patch("/api/item/{item:id}", dependencies=[Administering], summary="Change an item")
def change_item(service: Serving, item: ItemId, body: ItemChange) -> Affected:
    with service.database.writing() as connection:
        if not update_item(service.database, connection, item, body.columns()):
            raise _missing("item", item)
    return Affected(RowAffected=1)


@router.delete("/api/item/{item:id}", dependencies=[Administering], summary="Delete an item")
def delete_item(service: Serving, item: ItemId) -> Affected:
    with service.database.writing() as connection:
        if not remove_item(service.database, connection, item):
            raise _missing("item", item)
    return Affected(RowAffected=1)


@router.post("/api/user", dependencies=[Administering], summary="Insert or replace a user")
def insert_user(service: Serving, body: UserBody) -> Affected:
    return insert_users(service, [body])


@router.post("/api/users", dependencies=[Administering], summary="Insert or replace users")
def insert_users(service: Serving, body: Users) -> Affected:
    with service.database.writing() as connection:
        rows = put_users(service.database, connection, [one.user() for one in body])
    return Affected(RowAffected=rows)


@router.get("/api/users", dependencies=[Reading], summary="Users, page by page")
def get_users(service: Serving, cursor: Cursor = "", n: PageLength = 100) -> UserPage:
    with service.database.reading() as connection:
        found = page_of_users(connection, cursor, n)
    return UserPage(Cursor=_cursor(found, n), Users=[UserBody.from_user(one) for one in found])


@router.get("/api/user/{user:id}", dependencies=[Reading], summary="A user")
def get_user(service: Serving, user: UserId) -> UserBody:
    with service.database.reading() as connection:
        found = find_user(connection, user)
    if found is None:
        raise _missing("user", user)
    return UserBody.from_user(found)


@router.patch("/api/user/{user:id}", dependencies=[Administering], summary="Change a user")
def change_user(service: Serving, user: UserId, body: UserChange) -> Affected:
    with service.database.writing() as connection:
        if not update_user(connection, user, body.columns()):
            raise _missing("user", user)
    return Affected(RowAffected=1)


@router.delete(
    "/api/user/{user:id}",
    dependencies=[Administering],
    summary="Delete a user; `fairhorizon forget` also removes what they did",
)
def delete_user(service: Serving, user: UserId) -> Affected:
    with service.database.writing() as connection:
        if not remove_user(connection, user):
            raise _missing("user", user)
    return Affected(RowAffected=1)


def _categories(service: Serving, item: str, category: str, *, there: bool) -> Affected:
    with service.database.writing() as connection:
        found = find_item(connection, item)
        if found is None:
            raise _missing("item", item)
        others = [one for one in found.categories if one != category]
        changed = [*others, category] if there else others
        if set(changed) == set(found.categories):
            return Affected(RowAffected=0)
        if len(changed) > MOST_CATEGORIES:
            raise ApiProblem(
                422, f"item {item!r} has {MOST_CATEGORIES} categories", "take one from it first"
            )
        update_item(service.database, connection, item, {"categories": changed})
    return Affected(RowAffected=1)


def _cursor(found: list[Item] | list[User], n: int) -> str:
    # A full page may be the last one; the next is empty then.
    return found[-1].id if len(found) == n else ""


def _missing(what: str, name: str) -> ApiProblem:
    return ApiProblem(404, f"there is no {what} {name!r}", f"insert it: POST /api/{what}s")
